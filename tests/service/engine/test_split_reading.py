"""One reader at work: what it is given, and what it leaves behind."""

import asyncio
from collections import deque

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.split_ledger import Assignment
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.split_reading import ReadingFault, ReadingParts, SplitBuffer, SplitReading
from tests.service.engine.running import PATIENCE_S, SCHEMA

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")


def source_of(*split_ids: str, mode: ReadingMode) -> FakeSource:
    """A bounded source of splits with two pieces each."""
    source = FakeSource(is_bounded=True, reading_mode=mode)
    for split_id in split_ids:
        source.add(split_id, SplitPiece("", 0), SplitPiece("", 0))
    return source


class Readings:
    """Reads the splits of a source, one reader at a time, into a buffer without a limit."""

    def __init__(self, source: FakeSource) -> None:
        self.source = source
        self.left = deque(Assignment(Split(split_id), None) for split_id in source.splits)
        self.paused: frozenset[str] = frozenset()
        self.buffer: SplitBuffer[SplitPiece | ReadingFault] = SplitBuffer(2**30, lambda: None)

    def next_split(self) -> Assignment | None:
        """One that nobody has had."""
        return self.left.popleft() if self.left else None

    def reading(self) -> SplitReading:
        """The next reader, for the next split."""
        parts = ReadingParts(self.source, SCHEMA, self.buffer, self.next_split, lambda: self.paused)
        return SplitReading(self.left.popleft(), parts)

    def told(self) -> list[object]:
        """What is in the buffer: (split, position), or a fault."""
        parcels = iter(self.buffer.pop, None)
        return [
            (parcel.split_id, parcel.position) if isinstance(parcel, SplitPiece) else parcel
            for parcel in parcels
        ]


async def test_sequential_reader_has_one_split_at_a_time() -> None:
    """The same reader is given the next split when it has finished one."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.SEQUENTIAL))

    await readings.reading().run()

    assert readings.told() == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert readings.source.diary == [
        "open",
        "assign a @None",
        "read",
        "read",
        "assign b @None",
        "read",
        "read",
        "close",
    ]


async def test_multiplexed_reader_has_all_splits() -> None:
    """Each read tells of all of them."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.MULTIPLEXED))

    await readings.reading().run()

    assert readings.told() == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert readings.source.diary == [
        "open",
        "assign a @None",
        "assign b @None",
        "read",
        "read",
        "close",
    ]


async def test_parallel_reader_has_one_split_only() -> None:
    """It ends with its split, and leaves the next one to another reader."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.PARALLEL))

    await readings.reading().run()

    assert readings.told() == [("a", 1), ("a", 2)]
    assert [assignment.split.id for assignment in readings.left] == ["b"]


async def test_fault_stands_behind_what_was_read() -> None:
    """It names all splits that the reader had and had not finished; the reader is closed."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.MULTIPLEXED))
    readings.source.tell("b", SplitPiece("", 0))
    readings.source.fail_next("read", None, None, DOWN)

    await readings.reading().run()

    pieces = [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert readings.told() == [*pieces, ReadingFault(frozenset("b"), DOWN)]
    assert readings.source.open_readers == 0


async def test_reader_that_cannot_open_fails_its_splits() -> None:
    """The split that it was for was not read."""
    readings = Readings(source_of("a", mode=ReadingMode.MULTIPLEXED))
    readings.source.fail_next("open", DOWN)

    await readings.reading().run()

    assert readings.told() == [ReadingFault(frozenset("a"), DOWN)]
    assert readings.source.diary == ["open"]


async def test_split_that_cannot_be_assigned_fails() -> None:
    """So do the others that the reader was about to be given."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.MULTIPLEXED))
    readings.source.fail_next("assign", DOWN)

    await readings.reading().run()

    assert readings.told() == [ReadingFault(frozenset("ab"), DOWN)]


async def test_paused_splits_are_told_to_the_reader() -> None:
    """Once when it changes, before the next read, and only those that it has."""
    readings = Readings(source_of("a", "b", mode=ReadingMode.MULTIPLEXED))
    readings.source.ended.clear()
    readings.paused = frozenset({"a", "x"})
    task = asyncio.create_task(readings.reading().run())
    async with asyncio.timeout(PATIENCE_S):
        await readings.source.wait_for(lambda: readings.source.diary.count("read") == 4)
        readings.paused = frozenset()
        await readings.source.wait_for(lambda: "pause" in readings.source.diary)
    task.cancel()
    await asyncio.wait([task])

    assert [line for line in readings.source.diary if "pause" in line] == ["pause a", "pause"]
    assert readings.source.open_readers == 0
