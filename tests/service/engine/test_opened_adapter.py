"""Readers and enumerators that are open for the length of a block."""

import pytest
from structlog.testing import capture_logs

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.source import FakeSource
from service.engine.split_reading import opened_adapter
from tests.service.engine.running import SCHEMA

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "down")


async def test_adapter_is_open_in_the_block() -> None:
    """It is opened before the block, and closed after it."""
    source = FakeSource(is_bounded=True)

    async with opened_adapter(source.reader(SCHEMA)):
        inside = source.open_readers

    assert (inside, source.open_readers) == (1, 0)
    assert source.diary == ["open", "close"]


async def fail_with_open_reader(source: FakeSource) -> None:
    """Fail in a block that has a reader."""
    async with opened_adapter(source.reader(SCHEMA)):
        raise DOWN


async def test_failed_block_closes_the_adapter() -> None:
    """What the block raises comes out as it is."""
    source = FakeSource(is_bounded=True)

    with pytest.raises(BackendError, match="down"):
        await fail_with_open_reader(source)
    assert source.open_readers == 0


async def test_fault_in_opening_is_raised() -> None:
    """What could not be opened is not closed."""
    source = FakeSource(is_bounded=True)
    source.fail_next("open", DOWN)

    with pytest.raises(BackendError, match="down"):
        async with opened_adapter(source.reader(SCHEMA)):
            pass
    assert source.diary == ["open"]


async def test_fault_in_closing_is_logged() -> None:
    """What was read is not worse for it: the block ends as if nothing had been."""
    source = FakeSource(is_bounded=True)
    source.fail_next("close", DOWN)

    with capture_logs() as logs:
        async with opened_adapter(source.reader(SCHEMA)):
            pass

    assert [(line["event"], line["detail"]) for line in logs] == [("source.unclosed", "down")]
