"""The contract of the source port: one suite that runs over each implementation.

A test module subclasses the suite and provides a source with something to read. Sources whose
splits can be read again have a second suite on top of the first.
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


@dataclass(frozen=True, slots=True)
class SourceCase:
    """A source and its schema; best with several splits of several pieces, and no new data."""

    source: Source
    schema: DimensionSchema


@dataclass(slots=True)
class ReadSplits:
    """The pieces and changes of each split."""

    is_bounded: bool
    changes: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    pieces: dict[str, list[SplitPiece]] = field(default_factory=lambda: defaultdict(list))

    def add(self, pieces: Sequence[SplitPiece]) -> None:
        """Add the result of one read."""
        for piece in pieces:
            self.pieces[piece.split_id].append(piece)
            for change in piece.changes:
                self.changes[piece.split_id] += comparable(change)

    def is_read(self, split_id: str) -> bool:
        """Whether this split is read up to its end at its assignment."""
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

    async def test_discovery_repeats_known_splits(self, case: SourceCase) -> None:
        """Two discoveries find the same splits, with unique ids."""
        async with case.source.enumerator(case.schema) as enumerator:
            first = [split.id for split in await enumerator.discover()]
            second = [split.id for split in await enumerator.discover()]

        assert first == second
        assert len(set(first)) == len(first) > 0

    async def test_splits_are_read_to_their_ends(self, case: SourceCase) -> None:
        """Each split is read to its end; positions grow, and only bounded splits finish."""
        async with splits_of(case) as splits:
            found = await read_all(case, splits)

        assert set(found.pieces) == {split.id for split in splits}
        for pieces in found.pieces.values():
            positions = [piece.position for piece in pieces]
            assert positions == sorted(positions)
            assert all(piece.nbytes > 0 for piece in pieces if piece.changes)
            ends = [piece.is_finished for piece in pieces]
            assert ends == [False] * (len(pieces) - 1) + [case.source.is_bounded]

    async def test_reads_end_without_news(self, case: SourceCase) -> None:
        """A read of an unbounded source ends, and reports its splits, when nothing is new."""
        async with (
            asyncio.timeout(PATIENCE_S),
            splits_of(case) as splits,
            reader_of(case, splits) as reader,
        ):
            held = readable_together(case, splits)
            await read_on(reader, held, ReadSplits(case.source.is_bounded))
            after = [] if case.source.is_bounded else await reader.read()

        assert {piece.split_id for piece in after} == (set() if case.source.is_bounded else held)

    async def test_readers_close_at_any_time(self, case: SourceCase) -> None:
        """A reader closes before its first read and in the middle of a read."""
        async with asyncio.timeout(PATIENCE_S), splits_of(case) as splits:
            for reads in (False, True):
                async with case.source.reader(case.schema) as reader:
                    if reads:
                        await reader.assign(splits[0], position=None)
                        await cut_off_read(reader, after_s=0.01)


class RepeatableSourceContract(SourceContract):
    """For sources whose splits can be read again with the same changes."""

    async def test_reading_continues_at_a_position(self, case: SourceCase) -> None:
        """A new reader with a position reports exactly the changes behind it."""
        async with splits_of(case) as splits:
            found = await read_all(case, splits)
            for split in splits:
                for position in {piece.position for piece in found.pieces[split.id]}:
                    again = await read_all(case, [split], positions={split.id: position})
                    assert again.changes[split.id] == found.after(split.id, position)

    async def test_cancelled_reads_lose_nothing(self, case: SourceCase) -> None:
        """Readers whose reads are cancelled lose no change: others continue at the positions."""
        async with splits_of(case) as splits:
            expected = await read_all(case, splits)
            held = readable_together(case, splits)
            found, positions = ReadSplits(case.source.is_bounded), dict[str, int]()
            for attempt in range(5):
                async with reader_of(case, splits, positions=positions) as reader:
                    found.add(await cut_off_read(reader, after_s=attempt * 0.0005))
                positions = {each: found.pieces[each][-1].position for each in found.pieces}
            async with reader_of(case, splits, positions=positions) as reader:
                await read_on(reader, held, found)

        assert {each: found.changes[each] for each in held} == {
            each: expected.changes[each] for each in held
        }


class PausableSourceContract(RepeatableSourceContract):
    """For sources with readers of several splits at once."""

    async def test_pause_stops_one_split(self, case: SourceCase) -> None:
        """A paused split reports no change, other splits continue; later it reports all."""
        async with splits_of(case) as splits:
            expected = await read_all(case, splits)
            held = readable_together(case, splits)
            paused = min(held)
            async with reader_of(case, splits) as reader:
                reader.pause({paused})
                await read_on(reader, held - {paused}, found := ReadSplits(case.source.is_bounded))
                found.add(await cut_off_read(reader, after_s=0.02))
                while_paused = list(found.changes[paused])
                reader.pause(())
                await read_on(reader, held, found)

        assert while_paused == []
        assert {each: found.changes[each] for each in held} == {
            each: expected.changes[each] for each in held
        }


def comparable(change: Change) -> list[Any]:
    """A change as plain values, one for each row."""
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
    """The splits, while their enumerator is open."""
    async with case.source.enumerator(case.schema) as enumerator:
        yield await enumerator.discover()


def readable_together(case: SourceCase, splits: Sequence[Split]) -> set[str]:
    """The ids of the splits that one reader may have."""
    is_multiplexed = case.source.reading_mode is ReadingMode.MULTIPLEXED
    return {split.id for split in (splits if is_multiplexed else splits[:1])}


@asynccontextmanager
async def reader_of(
    case: SourceCase, splits: Sequence[Split], *, positions: Mapping[str, int] | None = None
) -> AsyncIterator[SplitReader]:
    """A reader with those of the splits that it may have together."""
    ids = readable_together(case, splits)
    async with case.source.reader(case.schema) as reader:
        for split in splits:
            if split.id in ids:
                await reader.assign(split, position=(positions or {}).get(split.id))
        yield reader


async def read_all(
    case: SourceCase, splits: Sequence[Split], *, positions: Mapping[str, int] | None = None
) -> ReadSplits:
    """Read these splits to their ends, in as many readers as the mode requires."""
    found = ReadSplits(case.source.is_bounded)
    left = list(splits)
    async with AsyncExitStack() as readers:
        while left:
            ids = readable_together(case, left)
            reader = await readers.enter_async_context(reader_of(case, left, positions=positions))
            await read_on(reader, ids, found)
            left = [split for split in left if split.id not in ids]
    return found


async def read_on(reader: SplitReader, split_ids: set[str], found: ReadSplits) -> None:
    """Read until these splits are read to their ends."""
    async with asyncio.timeout(PATIENCE_S):
        while not all(found.is_read(split_id) for split_id in split_ids):
            found.add(await reader.read())


async def cut_off_read(reader: SplitReader, *, after_s: float) -> Sequence[SplitPiece]:
    """The result of a read that is cancelled after this time."""
    try:
        async with asyncio.timeout(after_s):
            return await reader.read()
    except TimeoutError:
        return []
