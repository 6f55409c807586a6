"""Source coordinator, after Flink's FLIP-27, with the readers in the same event loop.

Makes no decision: the ledger knows the splits, the watermarks know which ones are idle.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.event_time.split_watermarks import SplitWatermarks, splits_ahead
from lookup_core.rate_limits import EventRateLimit
from lookup_core.sources.split_ledger import Assignment, SplitLedger
from lookup_core.sources.splits import ReadingMode, Split, SplitProgress
from service.connectors.ports.source import Source, SplitPiece
from service.engine.pause import jitter, pause
from service.engine.split_reading import (
    ReadingFault,
    ReadingParts,
    SplitBuffer,
    SplitDiscovery,
    SplitReading,
)

log = structlog.get_logger()

_MAX_FAILURES = 5  # consecutive ones of a bounded source, within 7.5 s at most


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """How a source is read."""

    dimension: str  # for the log
    parallelism: int = 4  # concurrent readers of a bounded source in parallel mode
    buffer_bytes: int = 8 * 2**20  # read and not taken, in each lane
    max_drift_ms: int | None = None  # pauses a split that is further ahead of the slowest
    idle_after_s: float = 5.0  # without changes, if it is caught up


class SourceCoordinator:
    """Passes each piece to `take`, in the order of its split; used by one event loop only.

    `take` is called by one task and must not block. A piece counts as read once it returns. An
    exception from it ends `run`.
    """

    def __init__(
        self,
        source: Source,
        schema: DimensionSchema,
        *,
        take: Callable[[SplitPiece], None],
        settings: CoordinatorSettings,
        on_news: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._take = take
        self._on_news = on_news  # called after each change of the splits
        self._settings = settings
        self._clock = clock
        most_failures = _MAX_FAILURES if source.is_bounded else None
        self.ledger = SplitLedger(most_failures)
        self.watermarks = SplitWatermarks(settings.idle_after_s)
        self._paused: frozenset[str] = frozenset()
        self._failure: BackendError | None = None  # permanent
        self._fault_logs = EventRateLimit()
        self._wake = asyncio.Event()
        self.buffer: SplitBuffer[SplitPiece | ReadingFault] = SplitBuffer(
            settings.buffer_bytes, self._wake.set
        )
        self._discovery = SplitDiscovery(
            source,
            schema,
            most_failures=most_failures,
            on_splits=self._on_splits,
            on_fault=self._on_discovery_fault,
        )
        self._parts = ReadingParts(
            source=source,
            schema=schema,
            buffer=self.buffer,
            next_split=self._next_split,
            paused=lambda: self._paused,
        )
        self._readings: set[asyncio.Task[None]] = set()

    @property
    def is_caught_up(self) -> bool:
        """Whether all splits are read up to their end at their assignment.

        False while new or failed splits catch up.
        """
        return self._discovery.is_done and self.ledger.is_caught_up

    @property
    def last_error(self) -> str | None:
        """The error of the last discovery, else that of a failing split."""
        if self._discovery.fault is not None:
            return self._discovery.fault.detail
        errors = (split.last_error for split in self.ledger.progress())
        return next((error for error in errors if error is not None), None)

    @property
    def has_paused(self) -> bool:
        """Whether a split is paused because it is too far ahead of the slowest."""
        return bool(self._paused)

    def request_signs(self) -> None:
        """Request a sign of life from each source, which a later piece reports."""
        for reader in self._parts.readers:
            reader.request_sign()

    def progress(self) -> Sequence[SplitProgress]:
        """All splits in the order of their discovery."""
        return [self._with_time(split) for split in self.ledger.progress()]

    async def run(self) -> None:
        """Read until all splits are finished; an unbounded source until cancelled.

        Raises BackendError if a bounded source fails permanently. Cancellation closes the readers,
        then the enumerator, within two seconds.
        """
        try:
            async with asyncio.TaskGroup() as enumerating:
                discovery = enumerating.create_task(self._discovery.run())
                async with asyncio.TaskGroup() as reading:
                    await self._consume(reading)
                    for task in self._readings:
                        task.cancel()
                discovery.cancel()
        except ExceptionGroup as group:
            raise _first(group) from group
        if self._failure is not None:
            raise self._failure

    async def _consume(self, tasks: asyncio.TaskGroup) -> None:
        while not self._is_over():
            self._start_readers(tasks)
            parcel = self.buffer.pop()
            match parcel:
                case None:
                    await self._pause()
                case ReadingFault():
                    self._on_reading_fault(parcel)
                case SplitPiece():
                    self._on_piece(parcel)
            if parcel is not None:
                await asyncio.sleep(0)  # lets lookups run
            self.watermarks.expire(self._clock(), paused=self._paused)
            if self._settings.max_drift_ms is not None:
                active_ms = self.watermarks.active_ms()
                self._paused = splits_ahead(active_ms, self._settings.max_drift_ms)
            self._on_news()

    def _is_over(self) -> bool:
        if self._failure is not None:
            return True
        return self._source.is_bounded and self._discovery.is_done and self.ledger.is_finished

    def _start_readers(self, tasks: asyncio.TaskGroup) -> None:
        while self._may_start_reader():
            first = self._next_split()
            if first is None:
                return
            task = tasks.create_task(SplitReading(first, self._parts).run())
            self._readings.add(task)
            task.add_done_callback(self._on_reading_end)

    def _may_start_reader(self) -> bool:
        if self._source.reading_mode is not ReadingMode.PARALLEL:
            return not self._readings
        # Unbounded splits never end: a limit would starve the others.
        return not self._source.is_bounded or len(self._readings) < self._settings.parallelism

    def _next_split(self) -> Assignment | None:
        return self.ledger.assign_next(self._clock())

    def _on_reading_end(self, task: asyncio.Task[None]) -> None:
        self._readings.discard(task)
        self._wake.set()  # another one may start

    async def _pause(self) -> None:
        # A multiplexed reader takes due splits by itself.
        retry_at = self.ledger.next_due() if self._may_start_reader() else None
        times = [at for at in (retry_at, self.watermarks.next_deadline()) if at is not None]
        await pause(self._wake, min(times) - self._clock() if times else None)
        self._wake.clear()

    def _on_piece(self, piece: SplitPiece) -> None:
        self._take(piece)
        is_caught_up = piece.is_caught_up or piece.is_finished
        self.ledger.on_progress(
            piece.split_id,
            piece.position,
            total=piece.total,
            is_caught_up=is_caught_up,
            may_go_back=any(isinstance(change, TableChange) for change in piece.changes),
        )
        self.watermarks.on_piece(
            piece.split_id,
            watermark_ms=piece.watermark_ms,
            has_changes=bool(piece.changes),
            is_caught_up=is_caught_up,
            now=self._clock(),
        )
        if piece.is_finished:
            self.ledger.on_finished(piece.split_id)
            self.watermarks.remove(piece.split_id)

    def _on_reading_fault(self, fault: ReadingFault) -> None:
        now = self._clock()
        drawn = jitter()  # the same for all splits: one reader reads them again
        for split_id in fault.split_ids:
            pause_s = self.ledger.on_failure(split_id, fault.error, now=now, jitter=drawn)
            self.watermarks.on_failure(split_id)
            if pause_s is None:
                self._failure = fault.error
        self._warn("source.reading_failed", fault.error, splits=len(fault.split_ids))

    def _on_splits(self, splits: Sequence[Split]) -> None:
        new = self.ledger.on_discovered(splits)
        for split in new:
            self.watermarks.add(split.id, self._clock())
        if new:
            log.info("source.splits_found", dimension=self._settings.dimension, new=len(new))
            self._on_news()
        self._wake.set()

    def _on_discovery_fault(self, error: BackendError) -> None:
        if self._discovery.has_given_up:
            self._failure = error
        self._warn("source.discovery_failed", error)
        self._wake.set()

    def _warn(self, event: str, error: BackendError, **fields: int) -> None:
        if self._fault_logs.is_due(f"{event} {error}", self._clock()):
            log.warning(
                event,
                dimension=self._settings.dimension,
                code=error.code,
                detail=error.detail,
                **fields,
            )

    def _with_time(self, split: SplitProgress) -> SplitProgress:
        time_of_split = self.watermarks.time_of(split.split_id)
        if time_of_split is None:  # it is finished
            return split
        return replace(
            split,
            watermark_ms=time_of_split.watermark_ms,
            is_idle=time_of_split.is_idle,
            is_paused=split.split_id in self._paused,
        )


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
