"""Fake source in memory, for tests and benchmarks: records its calls, fails and waits on request.

Reports the pieces that a test adds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitPiece, SplitReader
from tests.service.connectors.fake_backend import FAKE_SERVER


class FakeSource:
    """Splits with their pieces in order; a position counts pieces.

    `calls` has one line per call, such as `assign a @3`. `fail_next` and `hold` take the first
    word of a line: connect, discover and disconnect for enumerators; open, assign, read and close
    for readers.
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
        self.patience_s = patience_s  # how long a read waits for a piece
        self.silent_s = 0.0  # reported in each piece
        self.doubt: str | None = None  # reported in each piece
        self.server: ServerIdentity | None = FAKE_SERVER  # reported in pieces of `append`
        self.calls: list[str] = []
        self.splits: dict[str, list[SplitPiece]] = {}
        self.ended: set[str] = set()  # splits that have all their pieces
        self.open_readers = 0
        self.most_open_readers = 0
        self.changed = asyncio.Condition()
        self._faults: dict[str, deque[BackendError | None]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def enumerator(self, schema: DimensionSchema) -> "FakeEnumerator":
        """An enumerator of its splits."""
        del schema  # the pieces have it
        return FakeEnumerator(self)

    def reader(self, schema: DimensionSchema) -> "FakeReader":
        """A reader of its splits."""
        del schema  # as above
        return FakeReader(self)

    def add(self, split_id: str, *pieces: SplitPiece) -> None:
        """Add a split with these pieces, all of them if the source is bounded."""
        self.splits[split_id] = []
        self.append(split_id, *pieces)
        if self.is_bounded:
            self.ended.add(split_id)

    def append(self, split_id: str, *pieces: SplitPiece) -> None:
        """Append pieces to a split; sets their split and position."""
        known = self.splits[split_id]
        for piece in pieces:
            at = len(known) + 1
            known.append(replace(piece, split_id=split_id, position=at, server=self.server))

    def fail_next(self, what: str, *errors: BackendError | None) -> None:
        """Let the next calls of this kind raise these errors, one each; None: none."""
        self._faults.setdefault(what, deque()).extend(errors)

    def hold(self, what: str) -> None:
        """Hold calls of this kind until `release`."""
        self._gates[what] = asyncio.Event()

    def release(self, what: str) -> None:
        """Continue held calls of this kind, and hold no more."""
        self._gates.pop(what).set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked after each call."""
        async with self.changed:
            await self.changed.wait_for(condition)

    async def note(self, line: str) -> None:
        """Record a call, wait while it is held, and raise its error, if any."""
        what = line.split(maxsplit=1)[0]
        self.calls.append(line)
        async with self.changed:
            self.changed.notify_all()
        if what in self._gates:
            await self._gates[what].wait()
        faults = self._faults.get(what)
        error = faults.popleft() if faults else None
        if error is not None:
            raise error


class FakeEnumerator:
    """Lists the current splits of the fake."""

    def __init__(self, source: FakeSource) -> None:
        self.discovery_interval_s = source.discovery_interval_s
        self._source = source

    async def __aenter__(self) -> Self:
        await self._source.note("connect")
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._source.note("disconnect")

    async def discover(self) -> Sequence[Split]:
        """All splits in the order of their addition."""
        await self._source.note("discover")
        return [Split(split_id) for split_id in self._source.splits]


class FakeReader(SplitReader):
    """Reports one piece per split and read, or an empty piece if there is none."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._positions: dict[str, int] = {}  # {split id: reported pieces}
        self._ends: dict[str, int] = {}  # {split id: its end at its assignment}
        self._paused: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        await self._source.note("open")
        self._source.open_readers += 1
        self._source.most_open_readers = max(
            self._source.most_open_readers, self._source.open_readers
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._source.open_readers -= 1
        await self._source.note("close")

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read one more split."""
        await self._source.note(f"assign {split.id} @{position}")
        self._positions[split.id] = position or 0
        self._ends[split.id] = len(self._source.splits[split.id])

    async def read(self) -> Sequence[SplitPiece]:
        """The next piece of each split; empty ones, after a wait, if no split has any."""
        await self._source.note("read")
        if not self._has_news():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._source.patience_s):
                    await self._source.wait_for(self._has_news)
        pieces = [self._next(split_id) for split_id in self._positions if self._is_read(split_id)]
        # No await from here on: a cancellation must not lose pieces.
        for piece in pieces:
            self._positions[piece.split_id] = piece.position
            if piece.is_finished:
                del self._positions[piece.split_id]
        return pieces

    def pause(self, split_ids: Collection[str]) -> None:
        """Pause these splits, and resume all others."""
        self._source.calls.append(f"pause {' '.join(sorted(split_ids))}".strip())
        self._paused = frozenset(split_ids)

    def request_sign(self) -> None:
        """Record the request."""
        self._source.calls.append("request")

    def _has_news(self) -> bool:
        return any(self._is_read(split_id) and self._has_more(split_id) for split_id in self._ends)

    def _is_read(self, split_id: str) -> bool:
        return split_id in self._positions and split_id not in self._paused

    def _has_more(self, split_id: str) -> bool:
        pieces = self._source.splits[split_id]
        return self._positions[split_id] < len(pieces) or split_id in self._source.ended

    def _next(self, split_id: str) -> SplitPiece:
        pieces = self._source.splits[split_id]
        at = self._positions[split_id]
        piece = pieces[at] if at < len(pieces) else SplitPiece(split_id, at)
        is_last = piece.position == len(pieces)
        return replace(
            piece,
            silent_s=self._source.silent_s,
            doubt=self._source.doubt,
            is_caught_up=piece.position >= self._ends[split_id],
            is_finished=is_last and split_id in self._source.ended,
            total=len(pieces),
        )
