"""What follows a dimension's changes and says whether its cache may be believed.

No decision is made here: the coordinator reads, `FeedHealth` judges, the dimension's state acts.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from lookup_core.backoff import FailureBackoff
from lookup_core.changelog.change_decoder import Change, TableChange
from lookup_core.freshness.feed_health import FeedHealth, FeedState
from lookup_core.settings import FeedSettings
from lookup_core.statistics import FeedStatistics, InvalidationOrigin, UnusedMessage
from lookup_core.warning_gate import WarningGate
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.ports.source import Source, SplitPiece
from service.engine.pause import jitter, pause
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from service.engine.state_runner import StateRunner

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FeedParts:
    """Where changes come from, and what is asked of them."""

    dimension: str
    source: Callable[[], Source]  # a new one, to be followed from its beginning
    origin: InvalidationOrigin
    settings: FeedSettings
    on_changes: Callable[[Sequence[Change]], None]  # called after they were taken in
    on_watermark: Callable[[int], None]
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time  # Unix time: sources tell it


class Feed:
    """The changes of one dimension, for one runner; used by one event loop only.

    From its making on the runner's cache is not believed until all is told that there was.
    """

    def __init__(self, runner: StateRunner, parts: FeedParts) -> None:
        self._runner = runner
        self._parts = parts
        self._health = _health(parts.settings)
        self._coordinator: SourceCoordinator | None = None
        self._state = FeedState.STARTING
        self._unused_messages = dict.fromkeys(UnusedMessage, 0)
        self._warnings = WarningGate()
        self._is_live = asyncio.Event()
        self._news = asyncio.Event()
        runner.trust(is_trusted=False)

    @property
    def watermark_ms(self) -> int:
        """No change of an earlier event time follows; NO_WATERMARK_MS: none was told."""
        return NO_WATERMARK_MS if self._coordinator is None else self._coordinator.watermark_ms

    async def run(self) -> None:
        """Follow until cancelled; a defect here costs freshness for a while, and no lookup."""
        backoff = FailureBackoff()
        while True:
            try:
                await self._follow()
            except Exception:
                # The border of a task: lookups go on without a cache, and all is followed anew.
                log.exception("feed.failed", dimension=self._parts.dimension)
            self._forget("the feed failed")
            await asyncio.sleep(backoff.on_failure(jitter()))

    async def wait_until_live(self) -> None:
        """Wait until all is told that there was; cancellation leaves no trace."""
        await self._is_live.wait()

    def count_on(self, former: FeedStatistics) -> None:
        """Count on where the former runner's has stopped: no total goes back."""
        self._unused_messages = dict(former.unused_messages)

    def told_until(self) -> float | None:
        """All changes till then (monotonic) are told; None while it is not live."""
        return self._health.told_until() if self._is_live.is_set() else None

    def statistics(self) -> FeedStatistics:
        """How far it is."""
        unused_messages = dict(self._unused_messages)
        if self._coordinator is None:
            return FeedStatistics(self._state, unused_messages=unused_messages)
        return FeedStatistics(
            self._state,
            self.watermark_ms,
            self._coordinator.progress(),
            last_error=self._coordinator.last_error,
            unused_messages=unused_messages,
        )

    async def _follow(self) -> None:
        parts, drift_s = self._parts, self._parts.settings.max_drift_s
        self._coordinator = SourceCoordinator(
            parts.source(),
            self._runner.schema,
            take=self._on_piece,
            settings=CoordinatorSettings(
                parts.dimension, max_drift_ms=None if drift_s is None else int(drift_s * 1000)
            ),
            on_news=self._news.set,
            clock=parts.clock,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._coordinator.run())
            tasks.create_task(self._judge())

    def _on_piece(self, piece: SplitPiece) -> None:
        assert self._coordinator is not None  # it is what calls this
        now = self._parts.clock()
        if piece.changes:
            self._take(piece.changes)
        self._unused_messages[UnusedMessage.IGNORED] += piece.ignored
        self._unused_messages[UnusedMessage.UNDECODABLE] += piece.undecodable
        has_time = piece.watermark_ms != NO_WATERMARK_MS
        age_s = None
        if has_time:  # a time that lies ahead of ours must not outlast the source
            age_s = max(self._parts.wall_clock() - piece.watermark_ms / 1000, 0.0)
        self._health.on_splits(self._coordinator.split_ids, now)
        self._health.on_piece(
            piece.split_id,
            is_caught_up=piece.is_caught_up,
            silent_s=piece.silent_s,
            source_age_s=age_s,
            now=now,
        )

    async def _judge(self) -> None:
        while True:
            now = self._parts.clock()
            self._on_state(self._state_now(now))
            self._parts.on_watermark(self.watermark_ms)
            deadline_s = self._health.next_deadline(now)
            self._news.clear()
            # Silence is news, too.
            await pause(self._news, None if deadline_s is None else deadline_s - now)

    def _state_now(self, now: float) -> FeedState:
        assert self._coordinator is not None  # it is what is judged
        state = self._health.state(now)
        # A new split, or one whose reader has failed, has told nothing that health could know; what
        # a paused one has to tell is not read on purpose.
        is_behind = self._coordinator.has_paused or not self._coordinator.is_caught_up
        return FeedState.STARTING if state is FeedState.LIVE and is_behind else state

    def _on_state(self, state: FeedState) -> None:
        is_live = state is FeedState.LIVE
        if is_live:
            self._confirm()
        if state is self._state:
            return
        self._state = state
        self._runner.trust(is_trusted=is_live)
        if is_live:
            self._is_live.set()
        else:
            self._is_live.clear()
        level = log.info if is_live else log.warning
        level(f"feed.{state.value}", dimension=self._parts.dimension)

    def _confirm(self) -> None:
        if self._runner.state.whole is not None:
            self._runner.state.whole.confirm(self._health.told_until())

    def _warn(self, reason: str) -> None:
        if self._warnings.is_due(reason, self._parts.clock()):
            log.warning("feed.flushed", dimension=self._parts.dimension, reason=reason)

    def _forget(self, reason: str) -> None:
        self._health = _health(self._parts.settings)
        self._on_state(FeedState.STARTING)
        self._take([TableChange(reason)])

    def _take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, TableChange):
                self._warn(change.reason)
        self._runner.on_changes(changes, self._parts.origin)
        self._parts.on_changes(changes)


def _health(settings: FeedSettings) -> FeedHealth:
    return FeedHealth(
        max_silence_s=settings.max_silence_s, max_staleness_s=settings.max_staleness_s
    )
