"""A reader without a server; what it reads is shown by a real one."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.snapshot_source import PostgresSnapshotReader
from tests.service.sources.snapshot_tables import NOWHERE, split_of


async def test_reader_connects_for_its_first_split() -> None:
    """Until then it needs no server: which snapshot it is to see is said by the split."""
    async with PostgresSnapshotReader(NOWHERE) as reader:
        with pytest.raises(BackendError) as caught:
            await reader.assign(split_of([None, None]), position=None)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE


async def test_reader_without_a_split_has_nothing() -> None:
    """It tells of no split, and takes its time."""
    async with PostgresSnapshotReader(NOWHERE) as reader:
        reader.pause({"range 1"})

        assert await reader.read() == []
