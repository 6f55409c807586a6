"""Refresh of one dimension: feed, loads and warm-up, restarted with each schema."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from lookup_core.dimension.flight_table import LookupId
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.freshness.feed_health import FeedState, served_for_s, staleness_limit_s
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.statistics import (
    FeedStatistics,
    InvalidationOrigin,
    LoadStatistics,
    RefreshStatistics,
)
from service.connectors.ports.source import Source
from service.engine.feed import Feed, FeedParts
from service.engine.loading import Loading, LoadingParts
from service.engine.state_runner import StateRunner
from service.engine.waiting_for_changes import WaitingForChanges


@dataclass(frozen=True, slots=True)
class RefreshSources:
    """Where a dimension's changes and its whole table come from, as far as there are such."""

    changes: Callable[[], Source] | None = None  # a new one each time that it is followed anew
    origin: InvalidationOrigin = InvalidationOrigin.CHANGELOG
    table: Source | None = None  # of mode full


class RunnerRefresh:
    """Keeps the rows of one runner fresh while `run` runs; used by one event loop only."""

    def __init__(
        self,
        runner: StateRunner,
        sources: RefreshSources,
        settings: DimensionSettings,
        *,
        new_id: Callable[[], LookupId],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self.waiting = WaitingForChanges(runner, new_id=new_id, clock=clock)
        self._clock = clock
        self._served_for_s = served_for_s(settings.cache)
        self.feed: Feed | None = None
        self.loading: Loading | None = None
        if sources.changes is not None:
            feed = FeedParts(
                dimension=settings.name,
                source=sources.changes,
                origin=sources.origin,
                settings=settings.feed,
                on_changes=self.waiting.on_changes,
                on_watermark=self.waiting.on_watermark,
                clock=clock,
            )
            self.feed = Feed(runner, feed)
        if settings.cache.mode is CacheMode.FULL:
            assert sources.table is not None  # as the application wires it
            loading = LoadingParts(
                dimension=settings.name,
                source=sources.table,
                settings=settings.full,
                may_begin=self._wait_for_feed,
                clock=clock,
            )
            self.loading = Loading(runner, loading)

    async def run(self) -> None:
        """Follow and load until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.feed, self.loading, self.waiting):
                if part is not None:
                    tasks.create_task(part.run())

    def count_on(self, former: "RunnerRefresh") -> None:
        """Count on where the former runner's has stopped; its sources are the same."""
        if self.feed is not None and former.feed is not None:
            self.feed.count_on(former.feed.statistics())
        if self.loading is not None and former.loading is not None:
            self.loading.count_on(former.loading.statistics())

    def staleness_s(self) -> float | None:
        """How far what is served may lag its table; None if nothing is held. Looks at all rows."""
        oldest_s = self._runner.state.oldest_row_age_s(self._clock())
        if oldest_s is None:
            return None
        told_until = None if self.feed is None else self.feed.told_until()
        told_s = math.inf if told_until is None else self._clock() - told_until
        return min(oldest_s, self._served_for_s, told_s)

    async def _wait_for_feed(self) -> None:
        if self.feed is not None:
            await self.feed.wait_until_live()


class Warmup:
    """One dimension's start; once it counts as started, it does so for good."""

    def __init__(self, settings: DimensionSettings, *, began_at: float) -> None:
        self._is_over = settings.cache.mode is not CacheMode.FULL
        self._latest_end = began_at + settings.full.warmup_max_wait_s

    def cold_reason(
        self, load: LoadStatistics | None, feed: FeedStatistics | None, now: float
    ) -> str | None:
        """What is waited for; None when there is nothing, or when it has taken too long."""
        self._is_over |= now >= self._latest_end or (load is not None and load.is_whole)
        return None if self._is_over else _awaited(load or LoadStatistics(), feed)


def _awaited(load: LoadStatistics, feed: FeedStatistics | None) -> str:
    if load.is_loading:
        about = "" if load.expected_rows is None else f" of about {load.expected_rows:,}"
        failed = "" if load.last_error is None else f"; a try failed: {load.last_error}"
        return f"loading: {load.rows:,}{about} rows{failed}"
    if feed is not None and feed.state is not FeedState.LIVE:
        why = "" if feed.last_error is None else f": {feed.last_error}"
        return f"its load waits for its feed{why}"
    if load.last_error is not None:
        return f"its load failed: {load.last_error}"
    return "its load has not begun"


class Refresher:
    """Used by one event loop only; without sources there is nothing to it."""

    def __init__(
        self,
        settings: DimensionSettings,
        sources: RefreshSources,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._clock = clock
        self._warmup = Warmup(settings, began_at=clock())
        self._refresh: RunnerRefresh | None = None  # since the first runner
        self._task: asyncio.Task[None] | None = None
        self._ids = map(LookupId, count(1))

    @property
    def waiting(self) -> WaitingForChanges | None:
        """Whom to ask for keys; None before the first runner."""
        return None if self._refresh is None else self._refresh.waiting

    def new_id(self) -> LookupId:
        """A name for a lookup that no other one has."""
        return next(self._ids)

    def begin(self, runner: StateRunner, tasks: asyncio.TaskGroup) -> None:
        """Work for this runner from now on, and for no other."""
        if self._task is not None:
            self._task.cancel()
        refresh = RunnerRefresh(
            runner, self._sources, self._settings, new_id=self.new_id, clock=self._clock
        )
        if self._refresh is not None:
            refresh.count_on(self._refresh)
        self._refresh = refresh
        self._task = tasks.create_task(refresh.run())

    def reload(self) -> None:
        """Load the whole table anew; a load that is under way is followed by another.

        Raises InvalidRequest for a dimension that is not held whole.
        """
        if self._refresh is None or self._refresh.loading is None:
            name = self._settings.name
            detail = f"{name} is not held whole (cache.mode: full), so that there is no reload"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
        self._refresh.loading.ask()

    def cold_reason(self) -> str | None:
        """What is waited for before the dimension counts as started; None when it does."""
        load, feed = self.load_statistics(), self._feed_statistics()
        return self._warmup.cold_reason(load, feed, self._clock())

    def statistics(self) -> RefreshStatistics:
        """How it is loaded and followed; before the first runner, that it is neither yet."""
        staleness_s = None if self._refresh is None else self._refresh.staleness_s()
        return RefreshStatistics(
            staleness_s,
            self._feed_statistics(),
            self.load_statistics(),
            staleness_limit_s(self._settings, is_followed=self._sources.changes is not None),
        )

    def load_statistics(self) -> LoadStatistics | None:
        """How it is loaded, if it is; unlike all of it, this takes no time."""
        if self._refresh is None:
            return None if self._sources.table is None else LoadStatistics()
        loading = self._refresh.loading
        return None if loading is None else loading.statistics()

    def _feed_statistics(self) -> FeedStatistics | None:
        if self._refresh is None:
            return None if self._sources.changes is None else FeedStatistics(FeedState.STARTING)
        feed = self._refresh.feed
        return None if feed is None else feed.statistics()
