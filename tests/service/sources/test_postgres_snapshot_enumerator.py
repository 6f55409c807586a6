"""An enumerator without a server; how it cuts tables is shown by a real one."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.snapshot_source import PostgresSnapshotEnumerator
from tests.service.sources.snapshot_tables import NOWHERE, PRICES


async def test_missing_server_is_told_at_once() -> None:
    """The snapshot is of the server that is reached when it is opened, or of none."""
    enumerator = PostgresSnapshotEnumerator(NOWHERE, PRICES.schema, page_bytes=2**20)

    with pytest.raises(BackendError) as caught:
        await enumerator.__aenter__()

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert enumerator.discovery_interval_s is None
    await enumerator.__aexit__(None, None, None)
