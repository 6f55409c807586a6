"""Change feed of one dimension: applies its changes, and sets whether the cache is trusted.

Makes no decision: the coordinator reads, `FeedHealth` decides, the dimension's state acts.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from lookup_core.backoff import Backoff
from lookup_core.changelog.change_decoder import Change, TableChange
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.feed_health import TRUST_S, FeedHealth, FeedState
from lookup_core.rate_limits import EventRateLimit
from lookup_core.statistics import (
    FeedStatistics,
    InvalidationOrigin,
    UnusedMessage,
)
from service.connectors.ports.source import Source, SplitPiece
from service.engine.audit import FeedAudit
from service.engine.pause import jitter, pause
from service.engine.running_dimension import RunningDimension
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator

log = structlog.get_logger()

_RENEWAL_S = TRUST_S / 4
_FAILED = "the feed failed"
_OTHER_SERVER = "another server responded than that of the feed"


class Feed:
    """The changes of one dimension, for one running dimension; used by one event loop only.

    The cache is not trusted until the feed has caught up.
    """

    def __init__(
        self,
        running: RunningDimension,
        source: Callable[[], Source],
        *,
        origin: InvalidationOrigin,
    ) -> None:
        """`source` makes a new source, read from its start."""
        self._running = running
        self._source = source
        self._origin = origin
        self._settings = running.parts.settings.feed
        self._health = FeedHealth(self._settings)
        self._state = FeedState.STARTING
        self._unused_messages = dict.fromkeys(UnusedMessage, 0)
        self._flush_logs = EventRateLimit()
        self.is_live = asyncio.Event()
        self._news = asyncio.Event()
        self._audit: FeedAudit | None = None
        if running.state.audit is not None:
            self._audit = FeedAudit(running, running.state.audit)
        running.state.on_feed(self._state)
        self._coordinator = self._new_coordinator()

    async def run(self) -> None:
        """Follow the changes until cancelled.

        After a failure, or if reads have left the feed's server, from the start again.
        """
        backoff = Backoff()
        while True:
            reason = _FAILED
            try:
                await self._follow()
                reason = _OTHER_SERVER
            except Exception:
                # The border of a task: lookups bypass the cache until the feed is live again.
                log.exception("feed.failed", dimension=self._running.parts.name)
            self._restart(reason)
            await asyncio.sleep(backoff.on_failure(jitter()))
            self._coordinator = self._new_coordinator()

    def reported_until(self) -> float | None:
        """All changes until then (monotonic) are reported; None while the feed is not live."""
        return self._health.reported_until() if self._state is FeedState.LIVE else None

    def statistics(self) -> FeedStatistics:
        """State, splits and totals now."""
        statistics = FeedStatistics(
            self._state, unused_messages=dict(self._unused_messages), doubt=self._health.doubt
        )
        if self._audit is not None:
            statistics = self._audit.added_to(statistics)
        return replace(
            statistics,
            watermark_ms=self._coordinator.watermarks.valve.watermark_ms,
            splits=self._coordinator.progress(),
            last_error=self._coordinator.last_error,
        )

    def _new_coordinator(self) -> SourceCoordinator:
        drift_s, name = self._settings.max_drift_s, self._running.parts.name
        max_drift_ms = None if drift_s is None else int(drift_s * 1000)
        return SourceCoordinator(
            self._source(),
            self._running.schema,
            take=self._on_piece,
            settings=CoordinatorSettings(name, max_drift_ms=max_drift_ms),
            on_news=self._news.set,
            clock=self._running.parts.clock,
        )

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            parts = [self._coordinator.run()]
            if self._audit is not None:
                parts.append(self._audit.run())
            running = [tasks.create_task(part) for part in parts]
            await self._watch()
            for task in running:
                task.cancel()

    def _on_piece(self, piece: SplitPiece) -> None:
        now = self._running.parts.clock()
        if piece.server is not None:
            self._running.state.on_feed_server(piece.server)
        if piece.changes:
            self._take(piece.changes)
        self._unused_messages[UnusedMessage.IGNORED] += piece.ignored
        self._unused_messages[UnusedMessage.UNDECODABLE] += piece.undecodable
        has_time = piece.watermark_ms != NO_WATERMARK_MS
        age_s = None
        if has_time:  # never negative: a source clock that is ahead would count as fresh for longer
            age_s = max(time.time() - piece.watermark_ms / 1000, 0.0)
        self._health.doubt = piece.doubt
        self._health.on_splits(self._coordinator.ledger.split_ids, now)
        self._health.on_piece(
            piece.split_id,
            is_caught_up=piece.is_caught_up,
            silent_s=piece.silent_s,
            source_age_s=age_s,
            now=now,
            requested_s=piece.requested_s,
        )

    async def _watch(self) -> None:
        servers = self._running.state.servers
        epoch = servers.lookups.number
        while not servers.has_left_feed(since=epoch):
            now = self._running.parts.clock()
            if self._health.on_run(now):  # before any trust: changes may wait in sockets
                self._coordinator.request_signs()
            state = self._state_now(now)
            if self._audit is not None:
                reported_until = self._health.reported_until()
                state = self._audit.judged(state, reported_until=reported_until, now=now)
            self._on_state(state, now)
            self._running.on_watermark(self._coordinator.watermarks.valve.watermark_ms)
            deadline_s = self._health.next_deadline(now)
            self._news.clear()
            # Without news the state may change at the deadline, and trust ends without renewal.
            until_s = math.inf if deadline_s is None else deadline_s - now
            await pause(self._news, min(until_s, _RENEWAL_S))
        self._on_state(FeedState.STARTING, self._running.parts.clock())

    def _state_now(self, now: float) -> FeedState:
        state = self._health.state(now)
        # Health does not know new splits, failed ones, and paused ones, which are not read.
        is_behind = self._coordinator.has_paused or not self._coordinator.is_caught_up
        return FeedState.STARTING if state is FeedState.LIVE and is_behind else state

    def _on_state(self, state: FeedState, now: float) -> None:
        if state is FeedState.LIVE:
            self._running.state.on_feed(
                state,
                trusted_until=self._health.trusted_until(now),
                reported_until=self._health.reported_until(),
            )
        if state is self._state:
            return
        self._state = state
        if state is FeedState.LIVE:
            self.is_live.set()
        else:
            self._running.state.on_feed(state)
            self.is_live.clear()
        level = log.info if self.is_live.is_set() else log.warning
        level(f"feed.{state.value}", dimension=self._running.parts.name)

    def _restart(self, reason: str) -> None:
        self._health = FeedHealth(self._settings)
        self._on_state(FeedState.STARTING, self._running.parts.clock())
        self._take([TableChange(reason)])

    def _take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not isinstance(change, TableChange):
                continue
            if self._flush_logs.is_due(change.reason, self._running.parts.clock()):
                log.warning(
                    "feed.flushed", dimension=self._running.parts.name, reason=change.reason
                )
        self._running.on_changes(changes, self._origin)
