"""A source in memory that tells what it was given, keeps a diary, and fails or waits on request.

It ships, so that tests and benchmarks use the same fake; not for loading data.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitPiece


class FakeSource:
    """Splits with pieces in the order in which they were told; a position counts pieces.

    The diary has a line for each thing that was done, such as `assign a @3`; `wait_for` waits for
    one. Faults and gates go by the first word of those lines: connect, discover and disconnect for
    enumerators; open, assign, read, pause and close for readers.
    """

    def __init__(
        self,
        *,
        is_bounded: bool,
        reading_mode: ReadingMode = ReadingMode.MULTIPLEXED,
        discovery_interval_s: float | None = None,
        patience_s: float = 0.01,
    ) -> None:
        self.is_bounded = is_bounded
        self.reading_mode = reading_mode
        self.discovery_interval_s = discovery_interval_s
        self.patience_s = patience_s  # how long a read waits for something to tell
        self.silent_s = 0.0  # told in each piece
        self.diary: list[str] = []
        self.splits: dict[str, list[SplitPiece]] = {}
        self.ended: set[str] = set()  # splits that have all their pieces, if bounded
        self.open_readers = 0
        self.most_open_readers = 0
        self.changed = asyncio.Condition()
        self._faults: dict[str, deque[BackendError | None]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def enumerator(self, schema: DimensionSchema) -> "FakeEnumerator":
        """An enumerator of its splits."""
        del schema  # what it tells was made for it
        return FakeEnumerator(self)

    def reader(self, schema: DimensionSchema) -> "FakeReader":
        """A reader of its splits."""
        del schema  # as above
        return FakeReader(self)

    def add(self, split_id: str, *pieces: SplitPiece) -> None:
        """There is this split, with these pieces; of a bounded source it has no others."""
        self.splits[split_id] = []
        self.tell(split_id, *pieces)
        if self.is_bounded:
            self.ended.add(split_id)

    def tell(self, split_id: str, *pieces: SplitPiece) -> None:
        """Append pieces to a split; whose they are, and where, is filled in."""
        told = self.splits[split_id]
        for piece in pieces:
            told.append(replace(piece, split_id=split_id, position=len(told) + 1))

    def fail_next(self, what: str, *errors: BackendError | None) -> None:
        """Let the next calls of this kind raise these, one each; for None a call passes."""
        self._faults.setdefault(what, deque()).extend(errors)

    def hold(self, what: str) -> None:
        """Let calls of this kind wait from now on, until `release`."""
        self._gates[what] = asyncio.Event()

    def release(self, what: str) -> None:
        """Let those that wait go on, and later ones pass."""
        self._gates.pop(what).set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until this holds; looked at after each line of the diary."""
        async with self.changed:
            await self.changed.wait_for(condition)

    async def note(self, line: str) -> None:
        """Write a line, wait at the gate of its kind, and fail if that was asked for."""
        what = line.split(maxsplit=1)[0]
        self.diary.append(line)
        async with self.changed:
            self.changed.notify_all()
        if what in self._gates:
            await self._gates[what].wait()
        faults = self._faults.get(what)
        error = faults.popleft() if faults else None
        if error is not None:
            raise error


class FakeEnumerator:
    """Tells the splits that the fake has at that moment."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source

    @property
    def discovery_interval_s(self) -> float | None:
        """As the fake was told."""
        return self._source.discovery_interval_s

    async def __aenter__(self) -> Self:
        """Wait at the gate, and fail if that was asked for."""
        await self._source.note("connect")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As when it was opened."""
        await self._source.note("disconnect")

    async def discover(self) -> Sequence[Split]:
        """All splits in the order in which they were added."""
        await self._source.note("discover")
        return [Split(split_id) for split_id in self._source.splits]


class FakeReader:
    """Tells one piece of each of its splits at a time, or that there is none."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._positions: dict[str, int] = {}  # {split id: pieces that were told}
        self._ends: dict[str, int] = {}  # {split id: where it ended when it was assigned}
        self._paused: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        """Count it."""
        await self._source.note("open")
        self._source.open_readers += 1
        self._source.most_open_readers = max(
            self._source.most_open_readers, self._source.open_readers
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Count it, wait at the gate, and fail if that was asked for."""
        self._source.open_readers -= 1
        await self._source.note("close")

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Tell of this split, too."""
        await self._source.note(f"assign {split.id} @{position}")
        self._positions[split.id] = position or 0
        self._ends[split.id] = len(self._source.splits[split.id])

    async def read(self) -> Sequence[SplitPiece]:
        """The next piece of each split; signs of life, after a wait, if there is none at all."""
        await self._source.note("read")
        if not self._has_news():
            await self._wait_for_news()
        pieces = [self._next(split_id) for split_id in self._positions if self._may_tell(split_id)]
        # Nothing is awaited from here on, so that nothing that is counted as told is lost.
        for piece in pieces:
            self._positions[piece.split_id] = piece.position
            if piece.is_finished:
                del self._positions[piece.split_id]
        return pieces

    def pause(self, split_ids: Collection[str]) -> None:
        """Tell nothing of these."""
        self._source.diary.append(f"pause {' '.join(sorted(split_ids))}".strip())
        self._paused = frozenset(split_ids)

    async def _wait_for_news(self) -> None:
        try:
            async with asyncio.timeout(self._source.patience_s):
                await self._source.wait_for(self._has_news)
        except TimeoutError:
            pass  # signs of life are told instead

    def _has_news(self) -> bool:
        return any(self._may_tell(split_id) and self._has_more(split_id) for split_id in self._ends)

    def _may_tell(self, split_id: str) -> bool:
        return split_id in self._positions and split_id not in self._paused

    def _has_more(self, split_id: str) -> bool:
        told = self._source.splits[split_id]
        return self._positions[split_id] < len(told) or split_id in self._source.ended

    def _next(self, split_id: str) -> SplitPiece:
        told = self._source.splits[split_id]
        at = self._positions[split_id]
        piece = told[at] if at < len(told) else SplitPiece(split_id, at)
        is_last = piece.position == len(told)
        return replace(
            piece,
            silent_s=self._source.silent_s,
            is_caught_up=piece.position >= self._ends[split_id],
            is_finished=is_last and split_id in self._source.ended,
            total=len(told),
        )
