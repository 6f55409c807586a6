"""The fake source: what it tells, what it fails, and what it makes others wait for."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from tests.service.sources.source_contract import RepeatableSourceContract, SourceCase

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "down")


def row_changes(*ids: int) -> RowChanges:
    """Each of these ids has a row now."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], SCHEMA.key)
    rows = pa.record_batch([pa.array([f"name {each}" for each in ids])], SCHEMA.columns)
    has_row = np.ones(len(ids), np.bool_)
    return RowChanges(keys, has_row, ~has_row, rows, np.arange(len(ids), dtype=np.uint32))


def piece(*changes: RowChanges | TableChange) -> SplitPiece:
    """A piece of whichever split it is told for."""
    return SplitPiece("", 0, changes=changes, nbytes=100 * len(changes))


def filled(*, is_bounded: bool, mode: ReadingMode) -> SourceCase:
    """Three splits, one of them without anything."""
    source = FakeSource(is_bounded=is_bounded, reading_mode=mode)
    source.add("a", *(piece(row_changes(each, -each)) for each in range(5)))
    source.add("b", piece(row_changes(7)), piece(TableChange("truncated")), piece())
    source.add("c")
    return SourceCase(source, SCHEMA)


class TestBoundedFake(RepeatableSourceContract):
    """The contract, for a source that comes to an end."""

    @pytest.fixture(params=ReadingMode)
    def case(self, request: pytest.FixtureRequest) -> SourceCase:
        """In each mode."""
        return filled(is_bounded=True, mode=request.param)


class TestUnboundedFake(RepeatableSourceContract):
    """The contract, for a source that goes on for ever."""

    @pytest.fixture(params=ReadingMode)
    def case(self, request: pytest.FixtureRequest) -> SourceCase:
        """In each mode."""
        return filled(is_bounded=False, mode=request.param)


async def test_pieces_get_their_positions() -> None:
    """A piece is told as it was given, but for whose it is, and where."""
    source = FakeSource(is_bounded=False)
    source.silent_s = 3.0
    source.add("a", piece(), SplitPiece("", 0, watermark_ms=5))

    async with source.reader(SCHEMA) as reader:
        await reader.assign(Split("a"), position=1)
        told = await reader.read()

    assert told == [SplitPiece("a", 2, watermark_ms=5, silent_s=3.0, is_caught_up=True, total=2)]


async def test_later_pieces_are_read() -> None:
    """What is told after a reader has come to the end follows; it was caught up before."""
    source = FakeSource(is_bounded=False)
    source.add("a")

    async with source.reader(SCHEMA) as reader:
        await reader.assign(Split("a"), position=None)
        before = await reader.read()
        source.tell("a", piece(TableChange("truncated")))
        after = await reader.read()

    assert [(each.position, each.is_caught_up) for each in before] == [(0, True)]
    assert [(each.position, len(each.changes)) for each in after] == [(1, 1)]


async def test_faults_go_to_calls_in_order() -> None:
    """A fault is raised by the next call of its kind, once, and the diary has the call."""
    source = FakeSource(is_bounded=False)
    source.fail_next("discover", DOWN)

    async with source.enumerator(SCHEMA) as enumerator:
        with pytest.raises(BackendError):
            await enumerator.discover()
        assert await enumerator.discover() == []

    assert source.diary == ["connect", "discover", "discover", "disconnect"]


async def test_gates_hold_calls() -> None:
    """A call of a kind that is held waits until it is released."""
    source = FakeSource(is_bounded=False)
    source.hold("open")

    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(source.reader(SCHEMA).__aenter__())
        await source.wait_for(lambda: source.diary == ["open"])
        assert (source.open_readers, opening.done()) == (0, False)
        source.release("open")

    assert (source.open_readers, source.most_open_readers) == (1, 1)
