"""What every source does, whatever it reads: one suite, run for each implementation.

Not collected by itself: a test module subclasses it and says how a source with something to read is
made. A source whose splits can be read again has a second suite, on top of the first.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import Source, SplitPiece, SplitReader

PATIENCE_S = 20.0  # a test that waits longer has failed
READ_LIMIT_S = 3.0  # a read waits for a second at the most; the rest is for slow machines
CLOSING_LIMIT_S = 2.0  # as above


@dataclass(frozen=True, slots=True)
class SourceCase:
    """A source, and the schema that it is read for.

    It has something to read; best are several splits of several pieces. Nothing is added to it, so
    that whoever reads it up to its end finds the same.
    """

    source: Source
    schema: DimensionSchema


@dataclass(slots=True)
class Told:
    """What was read of each split, and where its pieces ended."""

    is_bounded: bool
    changes: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    pieces: dict[str, list[SplitPiece]] = field(default_factory=lambda: defaultdict(list))

    def add(self, pieces: Sequence[SplitPiece]) -> None:
        """Note what one read has brought."""
        for piece in pieces:
            self.pieces[piece.split_id].append(piece)
            for change in piece.changes:
                self.changes[piece.split_id] += comparable(change)

    def is_read(self, split_id: str) -> bool:
        """Whether this split was read up to where it ended when it was assigned."""
        pieces = self.pieces[split_id]
        if self.is_bounded:
            return any(piece.is_finished for piece in pieces)
        return any(piece.is_caught_up for piece in pieces)

    def after(self, split_id: str, position: int) -> list[Any]:
        """The changes of a split behind this position."""
        later = [piece for piece in self.pieces[split_id] if piece.position > position]
        return [each for piece in later for change in piece.changes for each in comparable(change)]


class SourceContract:
    """Subclasses override the fixture `case`, which may be asynchronous."""

    @pytest.fixture
    def case(self) -> SourceCase:
        """The source under test."""
        raise NotImplementedError

    async def test_discovery_tells_known_splits_again(self, case: SourceCase) -> None:
        """Whoever asks twice is told the same splits, each with an id of its own."""
        async with case.source.enumerator(case.schema) as enumerator:
            first = await enumerator.discover()
            second = await enumerator.discover()

        ids = [split.id for split in first]
        assert [split.id for split in second] == ids
        assert len(set(ids)) == len(ids) > 0

    async def test_splits_are_read_to_their_ends(self, case: SourceCase) -> None:
        """Every split comes to where it ended when it was assigned; its positions only grow."""
        async with splits_of(case) as splits:
            told = await read_all(case, splits)

        assert set(told.pieces) == {split.id for split in splits}
        for pieces in told.pieces.values():
            positions = [piece.position for piece in pieces]
            assert positions == sorted(positions)
            assert all(piece.nbytes > 0 for piece in pieces if piece.changes)

    async def test_only_bounded_splits_finish(self, case: SourceCase) -> None:
        """The last piece of a bounded split says so, no other one does."""
        async with splits_of(case) as splits:
            told = await read_all(case, splits)

        for pieces in told.pieces.values():
            ends = [piece.is_finished for piece in pieces]
            assert ends == [False] * (len(pieces) - 1) + [case.source.is_bounded]

    async def test_reads_end_without_news(self, case: SourceCase) -> None:
        """Where nothing is new, or all is paused, a read is over within a second, and tells so."""
        async with splits_of(case) as splits, reader_of(case, splits) as reader:
            held = readable_together(case, splits)
            reader.pause(held)
            paused = await timely_read(reader)
            reader.pause(())
            await read_on(reader, held, told := Told(case.source.is_bounded))
            # Nothing is left in a reader of what is bounded; nobody reads on.
            after = [] if case.source.is_bounded else await timely_read(reader)

        assert [piece for piece in paused if piece.changes] == []
        assert all(told.is_read(split_id) for split_id in held)
        assert {piece.split_id for piece in after} == (set() if told.is_bounded else held)

    async def test_closing_is_quick(self, case: SourceCase) -> None:
        """A reader closes at once: when nothing was read yet, and in the middle of a read."""
        loop = asyncio.get_running_loop()
        async with splits_of(case) as splits:
            for reads in (False, True):
                reader = await case.source.reader(case.schema).__aenter__()
                if reads:
                    await reader.assign(splits[0], position=None)
                    await cut_off_read(reader, after_s=0.01)
                started_at = loop.time()
                await reader.__aexit__(None, None, None)
                assert loop.time() - started_at < CLOSING_LIMIT_S


class RepeatableSourceContract(SourceContract):
    """For sources whose splits can be read again, with the same changes."""

    async def test_reading_goes_on_from_a_position(self, case: SourceCase) -> None:
        """A new reader that is given a position tells what lies behind it, and nothing else."""
        async with splits_of(case) as splits:
            told = await read_all(case, splits)
            for split in splits:
                for position in {piece.position for piece in told.pieces[split.id]}:
                    again = await read_all(case, [split], positions={split.id: position})
                    assert again.changes[split.id] == told.after(split.id, position)

    async def test_cancelled_reads_lose_nothing(self, case: SourceCase) -> None:
        """Reads that are cancelled at any moment lose and double nothing of what follows."""
        async with splits_of(case) as splits:
            expected = await read_all(case, splits)
            held = readable_together(case, splits)
            told = Told(case.source.is_bounded)
            async with reader_of(case, splits) as reader, asyncio.timeout(PATIENCE_S):
                for attempt in range(20):
                    told.add(await cut_off_read(reader, after_s=attempt * 0.0005))
                await read_on(reader, held, told)

        assert {each: told.changes[each] for each in held} == {
            each: expected.changes[each] for each in held
        }

    async def test_pause_stops_one_split_only(self, case: SourceCase) -> None:
        """A paused split tells no change, all others go on; later it tells all of them."""
        async with splits_of(case) as splits:
            expected = await read_all(case, splits)
            held = readable_together(case, splits)
            paused = min(held)
            async with reader_of(case, splits) as reader:
                reader.pause({paused})
                await read_on(reader, held - {paused}, told := Told(case.source.is_bounded))
                told.add(await timely_read(reader))
                while_paused = list(told.changes[paused])
                reader.pause(())
                await read_on(reader, held, told)

        assert while_paused == []
        assert {each: told.changes[each] for each in held} == {
            each: expected.changes[each] for each in held
        }


def comparable(change: Change) -> list[Any]:
    """A change in plain values, one for each of its rows."""
    if not isinstance(change, RowChanges):
        return [change]
    rows = [
        row if has_row else None
        for row, has_row in zip(change.rows.to_pylist(), change.has_row.tolist(), strict=True)
    ]
    columns = (change.keys.to_pylist(), change.is_gone.tolist(), rows)
    return list(zip(*columns, change.transaction_ids.tolist(), strict=True))


@asynccontextmanager
async def splits_of(case: SourceCase) -> AsyncIterator[Sequence[Split]]:
    """The splits, while the enumerator that found them is open."""
    async with case.source.enumerator(case.schema) as enumerator:
        yield await enumerator.discover()


def readable_together(case: SourceCase, splits: Sequence[Split]) -> set[str]:
    """The ids of the splits that one reader is given."""
    is_multiplexed = case.source.reading_mode is ReadingMode.MULTIPLEXED
    return {split.id for split in (splits if is_multiplexed else splits[:1])}


@asynccontextmanager
async def reader_of(
    case: SourceCase,
    splits: Sequence[Split],
    *,
    positions: Mapping[str, int] | None = None,
) -> AsyncIterator[SplitReader]:
    """A reader that has those of the splits that it may have together."""
    ids = readable_together(case, splits)
    async with case.source.reader(case.schema) as reader:
        for split in splits:
            if split.id in ids:
                await reader.assign(split, position=(positions or {}).get(split.id))
        yield reader


async def read_all(
    case: SourceCase,
    splits: Sequence[Split],
    *,
    positions: Mapping[str, int] | None = None,
) -> Told:
    """All that is there of these splits, in as many readers as the source's mode asks for."""
    told = Told(case.source.is_bounded)
    left = list(splits)
    async with AsyncExitStack() as readers:
        while left:
            ids = readable_together(case, left)
            reader = await readers.enter_async_context(reader_of(case, left, positions=positions))
            await read_on(reader, ids, told)
            left = [split for split in left if split.id not in ids]
    return told


async def read_on(reader: SplitReader, split_ids: set[str], told: Told) -> None:
    """Read until each of these splits is read to its end, within the test's time."""
    async with asyncio.timeout(PATIENCE_S):
        while not all(told.is_read(split_id) for split_id in split_ids):
            told.add(await reader.read())


async def timely_read(reader: SplitReader) -> Sequence[SplitPiece]:
    """One read, which is over in time."""
    async with asyncio.timeout(READ_LIMIT_S):
        return await reader.read()


async def cut_off_read(reader: SplitReader, *, after_s: float) -> Sequence[SplitPiece]:
    """What a read brings within this time; nothing, if it had to be cancelled."""
    try:
        async with asyncio.timeout(after_s):
            return await reader.read()
    except TimeoutError:
        return []
