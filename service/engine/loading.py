"""Loads of full cache mode: at the start, after a flush, on schedule and on demand.

A failed load changes nothing. The core merges the rows.
"""

import asyncio
import time
from dataclasses import replace

import structlog

from lookup_core.backoff import NEVER, Backoff
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.statistics import LoadResult, LoadStatistics
from lookup_core.table.full_table import FullTable
from lookup_core.table.reload import next_load_at
from service.connectors.ports.source import Source, SplitPiece
from service.engine.feed import Feed
from service.engine.pause import jitter, pause
from service.engine.running_dimension import RunningDimension
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator

log = structlog.get_logger()

_POLL_S = 0.5  # between two checks whether a load is due
_OUTDATED = "any row may have changed since its snapshot: the table changed, or a standby is late"


class _OutdatedError(Exception):
    """The rows that are read now are of no use: the load has to begin again."""


class Loading:
    """The loads of one running dimension; used by one event loop only."""

    def __init__(
        self,
        running: RunningDimension,
        source: Source,
        *,
        table: FullTable,
        feed: Feed | None = None,
    ) -> None:
        """The feed, if there is one, must be live before a load begins."""
        self._running = running
        self._source = source
        self._table = table
        self._feed = feed
        self._settings = running.parts.settings.full
        self._backoff = Backoff()
        self._due_at: float | None = None  # None: on demand
        self.is_requested = asyncio.Event()  # a load, after the one under way
        self._statistics = LoadStatistics()
        self._coordinator: SourceCoordinator | None = None  # that of the load under way
        running.state.wait_for_load(running.parts.clock())

    async def run(self) -> None:
        """Load whenever it is due, until cancelled, which drops the load under way."""
        while True:
            await self._wait_until_due()
            if not self._table.is_whole and not self._backoff.failures:
                await pause(self.is_requested, self._settings.load_spread_s * jitter())
            if self._feed is not None:
                await self._feed.is_live.wait()
            now = self._running.parts.clock()
            await asyncio.sleep(self._running.state.fence.table.settled_from(now) - now)
            self.is_requested.clear()  # later requests need another load
            await self._load()

    def statistics(self) -> LoadStatistics:
        """The load under way, and the results of former loads."""
        table = self._table
        statistics = replace(self._statistics, is_whole=table.is_whole, held_rows=len(table))
        if self._coordinator is None:
            return statistics
        error = self._coordinator.last_error or statistics.last_error
        statistics = replace(statistics, is_loading=True, last_error=error)
        return _with_progress(statistics, self._coordinator)

    async def _wait_until_due(self) -> None:
        # Polls: a flush of the table is not reported.
        clock = self._running.parts.clock
        due_at = NEVER if self._due_at is None else self._due_at
        while self._table.is_whole and not self.is_requested.is_set() and clock() < due_at:
            await pause(self.is_requested, _POLL_S)

    async def _load(self) -> None:
        began_at = self._running.parts.clock()
        failure, is_done = None, False
        try:
            is_done = await self._read(began_at)
        except Exception as error:  # noqa: BLE001
            # The border of a task: after any failure the former table stays, and a retry follows.
            failure = self._fault(error)
        if failure is not None:
            await self._on_failure(failure)
        elif is_done:
            self._on_success(self._running.parts.clock() - began_at)
        else:
            await self._on_outdated()

    async def _read(self, began_at: float) -> bool:
        """Load the table; False if the load is outdated. Keeps no reference to its memory."""
        self._statistics = replace(self._statistics, rows=0)
        load = self._running.state.begin_load(self._table, began_at)

        def take(piece: SplitPiece) -> None:
            if piece.server is not None:
                self._check_server(piece.server)
            if not load.add_changes(piece.changes, piece.snapshot, now=self._running.parts.clock()):
                raise _OutdatedError
            self._statistics = replace(self._statistics, rows=load.reload.row_count)

        self._coordinator = coordinator = SourceCoordinator(
            self._source,
            self._running.schema,
            take=take,
            settings=CoordinatorSettings(self._running.parts.name),
            clock=self._running.parts.clock,
        )
        try:
            await coordinator.run()
            return load.finish(self._running.parts.clock())
        except _OutdatedError:
            return False
        finally:
            self._coordinator = None  # its callback has the load
            self._statistics = _with_progress(self._statistics, coordinator)
            self._running.end_load(load)

    def _check_server(self, server: ServerIdentity) -> None:
        """Raise BackendError if lookups have another server, which a description then finds."""
        if server.is_other_than(self._running.state.servers.lookups.identity):
            self._running.parts.schema_watch.is_requested.set()
            detail = f"the load reached another server than lookups: {server}"
            raise BackendError(ErrorCode.CONNECTION_LOST, detail)

    def _on_success(self, seconds: float) -> None:
        rows = self._statistics.rows
        self._count(LoadResult.OK)
        self._backoff.on_success()
        self._running.parts.warmup.end()
        self._statistics = replace(self._statistics, last_seconds=seconds, last_error=None)
        now, wall_s = self._running.parts.clock(), time.time()
        self._due_at = next_load_at(self._settings.reload, now=now, wall_s=wall_s, jitter=jitter())
        log.info(
            "dimension.loaded",
            dimension=self._running.parts.name,
            row_count=rows,
            seconds=round(seconds, 3),
            rows_per_second=round(rows / max(seconds, 1e-3)),
        )

    async def _on_outdated(self) -> None:
        self._count(LoadResult.OUTDATED)
        self._statistics = replace(self._statistics, last_error=_OUTDATED)
        rows = self._statistics.rows
        log.warning("dimension.load_outdated", dimension=self._running.parts.name, row_count=rows)
        # If flushes come faster than loads end, loads must not follow without a pause.
        await self._pause(self._backoff.on_failure(jitter()))

    def _fault(self, error: Exception) -> BackendError:
        """Why a load failed, without the frames of the error, which have its memory."""
        if isinstance(error, BackendError):
            return BackendError(error.code, error.detail)
        log.error("dimension.load_broke", dimension=self._running.parts.name, exc_info=error)
        return BackendError(ErrorCode.INTERNAL, "the load broke; see the log")

    async def _on_failure(self, error: BackendError) -> None:
        self._count(LoadResult.ERROR)
        self._statistics = replace(self._statistics, last_error=error.detail)
        pause_s = self._backoff.on_failure(jitter())
        log.warning(
            "dimension.load_failed",
            dimension=self._running.parts.name,
            code=error.code,
            detail=error.detail,
            next_try_s=round(pause_s, 1),
        )
        if error.code is ErrorCode.SCHEMA_CHANGED:
            # With another schema, another dimension runs, and this load is cancelled.
            await self._running.parts.schema_watch.describe_again()
        await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        """Let a load follow after this time, or when one is requested."""
        self._due_at = self._running.parts.clock()
        await pause(self.is_requested, seconds)

    def _count(self, result: LoadResult) -> None:
        counts = self._statistics.counts
        self._statistics = replace(self._statistics, counts={**counts, result: counts[result] + 1})


def _with_progress(statistics: LoadStatistics, coordinator: SourceCoordinator) -> LoadStatistics:
    splits = coordinator.progress()
    totals = [split.total for split in splits if split.total is not None]
    # A split reports its total once it is read; the others count as equally large.
    expected = round(sum(totals) / len(totals) * len(splits)) if totals else None
    return replace(statistics, splits=splits, expected_rows=expected)
