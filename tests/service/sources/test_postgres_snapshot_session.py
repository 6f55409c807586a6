"""A session that cannot be had; what one does is shown by a real server."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.snapshot_session import PostgresSnapshotSession
from tests.service.sources.snapshot_tables import NOWHERE


async def test_missing_server_is_told() -> None:
    """Without a server opening fails with the table's name, and closing is no fault."""
    session = PostgresSnapshotSession(NOWHERE)

    with pytest.raises(BackendError) as caught:
        await session.open(None)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.detail.startswith("prices: ")
    assert not session.is_open
    await session.close()
