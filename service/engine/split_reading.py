"""Split discovery and reading of one source into a bounded buffer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import structlog

from lookup_core.backoff import FailureBackoff
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.split_ledger import Assignment
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.engine.backend_call import backend_call
from service.engine.pause import jitter

_PARCEL_BYTES = 256  # what one takes beside what it brings

Parcel = TypeVar("Parcel")


@dataclass(slots=True)
class _Lane(Generic[Parcel]):
    parcels: deque[tuple[Parcel, int]] = field(default_factory=deque)  # (parcel, its bytes)
    nbytes: int = 0
    has_room: asyncio.Event = field(default_factory=asyncio.Event)


class SplitBuffer(Generic[Parcel]):
    """Lanes of parcels, each lane with one reader; all are emptied by the same consumer.

    A lane holds at most `lane_bytes`, or a single parcel that is larger. `on_arrival` is called
    when there is something to take; it must not block.
    """

    def __init__(self, lane_bytes: int, on_arrival: Callable[[], None]) -> None:
        self._lane_bytes = lane_bytes
        self._on_arrival = on_arrival
        self._lanes: dict[str, _Lane[Parcel]] = {}
        self._turns: deque[_Lane[Parcel]] = deque()  # those that hold something

    @property
    def nbytes(self) -> int:
        """What all lanes hold."""
        return sum(lane.nbytes for lane in self._lanes.values())

    async def put(self, lane_name: str, parcel: Parcel, *, nbytes: int) -> None:
        """Wait until the lane has room, and add it at its end; cancelled, it is not there."""
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
        """The oldest of the lane whose turn it is; None when all are empty."""
        if not self._turns:
            return None
        lane = self._turns.popleft()
        parcel, nbytes = lane.parcels.popleft()
        lane.nbytes -= nbytes
        if lane.parcels:
            self._turns.append(lane)
        lane.has_room.set()
        return parcel


log = structlog.get_logger()

OPENING_TIMEOUT_S = 30.0
_CLOSING_TIMEOUT_S = 1.0


class Openable(Protocol):
    """What readers and enumerators have in common."""

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect."""


Adapter = TypeVar("Adapter", bound=Openable)


@asynccontextmanager
async def opened_adapter(adapter: Adapter) -> AsyncIterator[Adapter]:
    """The adapter, open until the block ends; raises BackendError if it cannot be opened.

    A fault in closing it is logged: what it read is not worse for that.
    """
    opened = await backend_call(adapter.__aenter__(), timeout_s=OPENING_TIMEOUT_S)
    try:
        yield opened
    finally:
        await _close(opened)


async def _close(adapter: Openable) -> None:
    try:
        await backend_call(adapter.__aexit__(None, None, None), timeout_s=_CLOSING_TIMEOUT_S)
    except BackendError as error:
        log.warning("source.unclosed", code=error.code, detail=error.detail)


_READING_TIMEOUT_S = 60.0  # a reader answers within a second, unless its store is slow
_SHARED_LANE = ""


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """A reader has failed, and with it all splits that it had."""

    split_ids: frozenset[str]
    error: BackendError


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """What all readers of one source work with."""

    source: Source
    schema: DimensionSchema
    buffer: SplitBuffer[SplitPiece | ReadingFault]
    next_split: Callable[[], Assignment | None]  # one more that may be read, which then is had
    paused: Callable[[], frozenset[str]]  # those that have to wait for others


class SplitReading:
    """The life of one reader, from its first split to its last, or to its first failure."""

    def __init__(self, first: Assignment, parts: ReadingParts) -> None:
        self._parts = parts
        self._mode = parts.source.reading_mode
        self._lane = first.split.id if self._mode is ReadingMode.PARALLEL else _SHARED_LANE
        self._had = [first]  # and not yet assigned to the reader
        self._split_ids = {first.split.id}  # that it has to read, or is to be given
        self._paused: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Read until no split is left; a failure goes into the buffer, behind what was read.

        Cancellation closes the reader; what it read and could not put into the buffer is lost.
        """
        try:
            async with opened_adapter(self._parts.source.reader(self._parts.schema)) as reader:
                await self._read_all(reader)
        except BackendError as error:
            fault = ReadingFault(frozenset(self._split_ids), error)
            await self._parts.buffer.put(self._lane, fault, nbytes=0)

    async def _read_all(self, reader: SplitReader) -> None:
        while True:
            self._have_more()
            if not self._split_ids:
                return
            await self._assign(reader)
            self._pause(reader)
            for piece in await backend_call(reader.read(), timeout_s=_READING_TIMEOUT_S):
                if piece.is_finished:
                    self._split_ids.discard(piece.split_id)
                await self._parts.buffer.put(self._lane, piece, nbytes=piece.nbytes)
            await asyncio.sleep(0)  # a reader that has much at hand may never wait by itself

    def _have_more(self) -> None:
        while self._wants_more():
            assignment = self._parts.next_split()
            if assignment is None:
                return
            self._had.append(assignment)
            self._split_ids.add(assignment.split.id)

    def _wants_more(self) -> bool:
        match self._mode:
            case ReadingMode.MULTIPLEXED:
                return True
            case ReadingMode.SEQUENTIAL:
                return not self._split_ids
            case ReadingMode.PARALLEL:
                return False  # the next one has a reader and a buffer of its own

    async def _assign(self, reader: SplitReader) -> None:
        for assignment in self._had:
            call = reader.assign(assignment.split, position=assignment.position)
            await backend_call(call, timeout_s=_READING_TIMEOUT_S)
        self._had = []

    def _pause(self, reader: SplitReader) -> None:
        paused = self._parts.paused() & self._split_ids
        if paused != self._paused:
            reader.pause(paused)
            self._paused = paused


_DISCOVERY_TIMEOUT_S = 60.0


class SplitDiscovery:
    """Keeps an enumerator open, and `on_splits` told of all splits that there are.

    With `most_failures` it gives up after so many in a row, or after one that will not pass.
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
        self._backoff = FailureBackoff()
        self.is_done = False  # it has told all splits that there were
        self.has_given_up = False
        self.fault: BackendError | None = None  # of the last try, if it failed

    async def run(self) -> None:
        """Until cancelled, or until it gives up; then the enumerator is closed."""
        while not self.has_given_up:
            try:
                async with opened_adapter(self._source.enumerator(self._schema)) as enumerator:
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
                await asyncio.Event().wait()  # readers may need what it holds open
            else:
                await asyncio.sleep(interval_s)

    async def _pause_after(self, error: BackendError) -> None:
        pause_s = self._backoff.on_failure(jitter())
        self.fault = error
        if self._most_failures is not None:
            is_last = self._backoff.failures >= self._most_failures
            self.has_given_up = is_last or not error.is_retryable
        self._on_fault(error)
        if not self.has_given_up:
            await asyncio.sleep(pause_s)
