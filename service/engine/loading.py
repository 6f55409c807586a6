"""Loads a table that is to be held whole: at the start, in doubt, at its times, and on demand.

A failed load leaves all as it was. What a load does with its rows is the core's business.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from lookup_core.backoff import FailureBackoff
from lookup_core.dimension.full_mode import TableLoad
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import FullSettings, WhileLoading
from lookup_core.statistics import LoadResult, LoadStatistics
from lookup_core.table.reload import next_load_at
from service.connectors.ports.source import Source, SplitPiece
from service.engine.pause import jitter, pause
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from service.engine.state_runner import StateRunner

log = structlog.get_logger()

_LOOK_S = 0.5  # between two looks at whether a load is due


@dataclass(frozen=True, slots=True)
class LoadingParts:
    """Where the rows come from, and when."""

    dimension: str
    source: Source
    settings: FullSettings
    may_begin: Callable[[], Awaitable[None]]  # returns when changes are followed
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time


class Loading:
    """The loads of one runner's table; used by one event loop only."""

    def __init__(self, runner: StateRunner, parts: LoadingParts) -> None:
        assert runner.state.whole is not None  # of this mode only
        self.table = runner.state.whole
        self._runner = runner
        self._parts = parts
        self._backoff = FailureBackoff()
        self._due_at: float | None = None  # None: when somebody asks for it
        self._is_asked = asyncio.Event()
        self._statistics = LoadStatistics()
        self._is_loading = False
        self._coordinator: SourceCoordinator | None = None  # of the last load
        if parts.settings.while_loading is WhileLoading.WAIT:
            self.table.hold_until(parts.clock() + parts.settings.warmup_max_wait_s)

    async def run(self) -> None:
        """Load whenever it is due, until cancelled, which gives the load under way up."""
        while True:
            await self._wait_until_due()
            await self._parts.may_begin()
            now = self._parts.clock()
            await asyncio.sleep(self.table.loads_from(now) - now)
            self._is_asked.clear()  # what is asked for from here on comes too late for this load
            await self._load()

    def ask(self) -> None:
        """Load anew as soon as possible; one that is under way has begun too early."""
        self._is_asked.set()

    def count_on(self, former: LoadStatistics) -> None:
        """Count on where the former runner's have stopped: no total goes back."""
        self._statistics = replace(self._statistics, counts=former.counts)

    def statistics(self) -> LoadStatistics:
        """How far it is, and how former loads ended."""
        statistics = replace(
            self._statistics, is_whole=self.table.is_whole, held_rows=self.table.row_count
        )
        if self._coordinator is None:
            return statistics
        error = self._coordinator.last_error if self._is_loading else None
        splits = self._coordinator.progress()
        totals = [split.total for split in splits if split.total is not None]
        # Splits tell it when they are begun; the others are about as large.
        expected = round(sum(totals) / len(totals) * len(splits)) if totals else None
        return replace(
            statistics,
            is_loading=self._is_loading,
            splits=splits,
            expected_rows=expected,
            last_error=error or statistics.last_error,
        )

    async def _wait_until_due(self) -> None:
        # Whatever has forgotten the table need not say so: this is looked at again and again.
        while self.table.is_whole and not self._is_asked.is_set() and not self._is_due():
            await pause(self._is_asked, _LOOK_S)

    def _is_due(self) -> bool:
        return self._due_at is not None and self._parts.clock() >= self._due_at

    async def _load(self) -> None:
        began_at = self._parts.clock()
        load = self.table.begin_load(began_at)
        self._statistics = replace(self._statistics, rows=0)
        self._is_loading = True
        failure, is_done = None, False
        try:
            is_done = await self._read(load)
        except Exception as error:  # noqa: BLE001
            # The border of a task: whatever fails, the former table stays, and it is tried again.
            failure = error
        finally:
            self._is_loading = False
            self._runner.end_load()
        if failure is not None:
            await self._on_failure(failure)
        elif is_done:
            self._on_success(load.row_count, self._parts.clock() - began_at)
        else:
            await self._on_doubt(load.row_count)

    async def _read(self, load: TableLoad) -> bool:
        def take(piece: SplitPiece) -> None:
            load.take(piece.changes, piece.snapshot, now=self._parts.clock())
            self._statistics = replace(self._statistics, rows=load.row_count)

        self._coordinator = SourceCoordinator(
            self._parts.source,
            self._runner.schema,
            take=take,
            settings=CoordinatorSettings(self._parts.dimension),
            clock=self._parts.clock,
        )
        await self._coordinator.run()
        return load.finish(self._parts.clock())

    def _on_success(self, rows: int, seconds: float) -> None:
        self._count(LoadResult.OK)
        self._backoff.on_success()
        self._statistics = replace(self._statistics, last_seconds=seconds, last_error=None)
        now, wall_s = self._parts.clock(), self._parts.wall_clock()
        self._due_at = next_load_at(self._parts.settings.reload, now=now, wall_s=wall_s)
        log.info(
            "dimension.loaded",
            dimension=self._parts.dimension,
            row_count=rows,
            seconds=round(seconds, 3),
            rows_per_second=round(rows / max(seconds, 1e-3)),
        )

    async def _on_doubt(self, rows: int) -> None:
        self._count(LoadResult.OUTDATED)
        log.warning("dimension.load_outdated", dimension=self._parts.dimension, row_count=rows)
        self._due_at = self._parts.clock()  # whoever asked for it has not got it yet
        # Where doubts come faster than loads end, loading would be all that is done.
        await asyncio.sleep(self._backoff.on_failure(jitter()))

    async def _on_failure(self, error: Exception) -> None:
        if not isinstance(error, BackendError):
            log.error("dimension.load_broke", dimension=self._parts.dimension, exc_info=error)
            error = BackendError(ErrorCode.INTERNAL, "the load broke; see the log")
        self._count(LoadResult.ERROR)
        self._statistics = replace(self._statistics, last_error=error.detail)
        pause_s = self._backoff.on_failure(jitter())
        log.warning(
            "dimension.load_failed",
            dimension=self._parts.dimension,
            code=error.code,
            detail=error.detail,
            next_try_s=round(pause_s, 1),
        )
        self._due_at = self._parts.clock() + pause_s
        if error.code is ErrorCode.SCHEMA_CHANGED:
            await self._runner.is_unchanged()  # if it is not, another runner takes over meanwhile
        await asyncio.sleep(pause_s)

    def _count(self, result: LoadResult) -> None:
        counts = self._statistics.counts
        self._statistics = replace(self._statistics, counts={**counts, result: counts[result] + 1})
