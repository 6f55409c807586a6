"""Split discovery and split readers of one source, and the bounded buffer that they fill.

Knows neither the state of the splits nor the meaning of the pieces.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from lookup_core.backoff import Backoff
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.split_ledger import Assignment
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.engine.backend_call import backend_call
from service.engine.pause import jitter

log = structlog.get_logger()

OPENING_TIMEOUT_S = 30.0
_CLOSING_TIMEOUT_S = 1.0
_DISCOVERY_TIMEOUT_S = 60.0
_FEED_TIMEOUT_S = 60.0  # a reader of changes returns within a second, unless its source is slow
_LOAD_TIMEOUT_S = 900.0  # a database may read and sort all rows before the first
_PAUSED_S = 0.5  # between two looks whether a split may go on
_PARCEL_BYTES = 256  # the overhead of a parcel
_SHARED_LANE = ""

Parcel = TypeVar("Parcel")


@dataclass(slots=True)
class _Lane(Generic[Parcel]):
    parcels: deque[tuple[Parcel, int]] = field(default_factory=deque)  # (parcel, its bytes)
    nbytes: int = 0
    has_room: asyncio.Event = field(default_factory=asyncio.Event)


class SplitBuffer(Generic[Parcel]):
    """Lanes of parcels, each filled by one reader; one consumer takes from them in turns.

    A lane holds at most `lane_bytes`, or a single larger parcel. `on_arrival` is called after each
    `put`; it must not block.
    """

    def __init__(self, lane_bytes: int, on_arrival: Callable[[], None]) -> None:
        self._lane_bytes = lane_bytes
        self._on_arrival = on_arrival
        self._lanes: dict[str, _Lane[Parcel]] = {}
        self._turns: deque[_Lane[Parcel]] = deque()  # lanes with parcels

    @property
    def nbytes(self) -> int:
        """The bytes of all lanes."""
        return sum(lane.nbytes for lane in self._lanes.values())

    async def put(self, lane_name: str, parcel: Parcel, *, nbytes: int) -> None:
        """Wait until the lane has room, and add the parcel at its end, unless cancelled."""
        lane = self._lanes.setdefault(lane_name, _Lane())
        nbytes += _PARCEL_BYTES
        while lane.parcels and lane.nbytes + nbytes > self._lane_bytes:
            lane.has_room.clear()
            await lane.has_room.wait()
        if not lane.parcels:
            self._turns.append(lane)
        lane.parcels.append((parcel, nbytes))
        lane.nbytes += nbytes
        self._on_arrival()

    def pop(self) -> Parcel | None:
        """The oldest parcel of the lane whose turn it is; None if all are empty."""
        if not self._turns:
            return None
        lane = self._turns.popleft()
        parcel, nbytes = lane.parcels.popleft()
        lane.nbytes -= nbytes
        if lane.parcels:
            self._turns.append(lane)
        lane.has_room.set()
        return parcel


Port = TypeVar("Port")


@asynccontextmanager
async def opened_port(port: AbstractAsyncContextManager[Port]) -> AsyncIterator[Port]:
    """The reader or enumerator, open until the block ends; BackendError if it cannot be opened.

    An error at its end is logged only: everything is read by then.
    """
    opened = await backend_call(port.__aenter__(), timeout_s=OPENING_TIMEOUT_S)
    try:
        yield opened
    finally:
        await _close(port)


async def _close(port: AbstractAsyncContextManager[Any]) -> None:
    try:
        await backend_call(port.__aexit__(None, None, None), timeout_s=_CLOSING_TIMEOUT_S)
    except BackendError as error:
        log.warning("source.unclosed", code=error.code, detail=error.detail)


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """A reader failed, and with it all of its splits."""

    split_ids: frozenset[str]
    error: BackendError


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """What all readers of one source share."""

    source: Source
    schema: DimensionSchema
    buffer: SplitBuffer[SplitPiece | ReadingFault]
    next_split: Callable[[], Assignment | None]  # assigns one more split
    paused: Callable[[], frozenset[str]]  # splits that must wait for others
    readers: set[SplitReader] = field(default_factory=set)  # open ones


class SplitReading:
    """One reader, from its first split to its last, or to its first failure."""

    def __init__(self, first: Assignment, parts: ReadingParts) -> None:
        self._parts = parts
        self._mode = parts.source.reading_mode
        self._timeout_s = _LOAD_TIMEOUT_S if parts.source.is_bounded else _FEED_TIMEOUT_S
        self._lane = first.split.id if self._mode is ReadingMode.PARALLEL else _SHARED_LANE
        self._pending = [first]  # splits to give to the reader
        self._split_ids = {first.split.id}  # unfinished ones, pending ones included
        self._paused: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Read until no split is left; a failure goes into the buffer, behind the pieces.

        Cancellation closes the reader; pieces that are not in the buffer yet are lost.
        """
        try:
            async with opened_port(self._parts.source.reader(self._parts.schema)) as reader:
                self._parts.readers.add(reader)
                try:
                    await self._read_all(reader)
                finally:
                    self._parts.readers.discard(reader)
        except BackendError as error:
            fault = ReadingFault(frozenset(self._split_ids), error)
            await self._parts.buffer.put(self._lane, fault, nbytes=0)

    async def _read_all(self, reader: SplitReader) -> None:
        while True:
            self._take_splits()
            if not self._split_ids:
                return
            await self._assign(reader)
            self._pause(reader)
            if self._paused == self._split_ids:
                await asyncio.sleep(_PAUSED_S)
                continue
            for piece in await backend_call(reader.read(), timeout_s=self._timeout_s):
                if piece.is_finished:
                    self._split_ids.discard(piece.split_id)
                await self._parts.buffer.put(self._lane, piece, nbytes=piece.nbytes)
            await asyncio.sleep(0)  # a reader with data at hand may never wait by itself

    def _take_splits(self) -> None:
        while self._wants_more():
            assignment = self._parts.next_split()
            if assignment is None:
                return
            self._pending.append(assignment)
            self._split_ids.add(assignment.split.id)

    def _wants_more(self) -> bool:
        match self._mode:
            case ReadingMode.MULTIPLEXED:
                return True
            case ReadingMode.SEQUENTIAL:
                return not self._split_ids
            case ReadingMode.PARALLEL:
                return False  # each split has its own reader

    async def _assign(self, reader: SplitReader) -> None:
        for assignment in self._pending:
            call = reader.assign(assignment.split, position=assignment.position)
            await backend_call(call, timeout_s=self._timeout_s)
        self._pending = []

    def _pause(self, reader: SplitReader) -> None:
        paused = self._parts.paused() & self._split_ids
        if paused != self._paused:
            reader.pause(paused)
            self._paused = paused


class SplitDiscovery:
    """Keeps an enumerator open, and calls `on_splits` with all splits after each discovery.

    Gives up after `most_failures` consecutive failures (None: never), or a permanent one.
    """

    def __init__(
        self,
        source: Source,
        schema: DimensionSchema,
        *,
        most_failures: int | None,
        on_splits: Callable[[Sequence[Split]], None],
        on_fault: Callable[[BackendError], None],
    ) -> None:
        self._source = source
        self._schema = schema
        self._most_failures = most_failures
        self._on_splits = on_splits
        self._on_fault = on_fault
        self._backoff = Backoff()
        self.is_done = False  # a discovery has succeeded
        self.has_given_up = False
        self.fault: BackendError | None = None  # why the last discovery failed

    async def run(self) -> None:
        """Discover until cancelled, or until it gives up; then closes the enumerator."""
        while not self.has_given_up:
            try:
                async with opened_port(self._source.enumerator(self._schema)) as enumerator:
                    await self._discover(enumerator)
            except BackendError as error:
                await self._pause_after(error)

    async def _discover(self, enumerator: SplitEnumerator) -> None:
        interval_s = None if self._source.is_bounded else enumerator.discovery_interval_s
        while True:
            call = enumerator.discover()
            splits = await backend_call(call, timeout_s=_DISCOVERY_TIMEOUT_S)
            self._backoff.on_success()
            self.fault, self.is_done = None, True
            self._on_splits(splits)
            if interval_s is None:
                await asyncio.Event().wait()  # readers may need its resources
            else:
                await asyncio.sleep(interval_s)

    async def _pause_after(self, error: BackendError) -> None:
        pause_s = self._backoff.on_failure(jitter())
        self.fault = error
        if self._most_failures is not None:
            is_last = self._backoff.failures >= self._most_failures
            self.has_given_up = is_last or not error.code.is_retryable
        self._on_fault(error)
        if not self.has_given_up:
            await asyncio.sleep(pause_s)
