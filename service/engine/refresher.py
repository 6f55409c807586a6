"""Refresher of one dimension: its feed, loads and warm-up, restarted with each schema.

Starts no lookup: its feed reports changes to those that wait for them.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

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
from service.engine.feed import Feed
from service.engine.loading import Loading
from service.engine.state_runner import StateRunner
from service.engine.waiting_for_changes import WaitingForChanges


@dataclass(frozen=True, slots=True)
class RefreshSources:
    """The sources of a dimension's changes and of its whole table, if there are such."""

    changes: Callable[[], Source] | None = None  # makes a new one for each attempt to follow it
    origin: InvalidationOrigin = InvalidationOrigin.CHANGELOG
    table: Source | None = None  # in full mode


class Warmup:
    """The start of one dimension: ends with its first load, or after the configured time."""

    def __init__(self, settings: DimensionSettings, *, began_at: float) -> None:
        self._is_over = settings.cache.mode is not CacheMode.FULL  # for good, once true
        self._latest_end = began_at + settings.full.warmup_max_wait_s

    def cold_reason(
        self, load: LoadStatistics | None, feed: FeedStatistics | None, now: float
    ) -> str | None:
        """What the start waits for; None once it is over."""
        self._is_over |= now >= self._latest_end or (load is not None and load.is_whole)
        return None if self._is_over else _cold_reason(load or LoadStatistics(), feed)


class Refresher:
    """Keeps the rows of the present runner fresh; used by one event loop only."""

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
        self._runner: StateRunner | None = None
        self._feed: Feed | None = None
        self._loading: Loading | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(
        self,
        runner: StateRunner,
        tasks: asyncio.TaskGroup,
        *,
        lookups: WaitingForChanges,
    ) -> None:
        """Refresh this runner from now on, and no other; totals of the former one count on.

        The lookups hear of the feed's changes after the runner has applied them.
        """
        self.end()
        feed, loading = self._feed_statistics(), self.load_statistics()
        self._runner = runner
        if self._sources.changes is not None:
            self._feed = Feed(
                runner,
                self._sources.changes,
                origin=self._sources.origin,
                lookups=lookups,
                former=feed,
            )
        if self._settings.cache.mode is CacheMode.FULL:
            assert self._sources.table is not None  # as the application wires it
            table = self._sources.table
            self._loading = Loading(runner, table, feed=self._feed, former=loading)
        self._task = tasks.create_task(self._run())

    def end(self) -> None:
        """Follow and load nothing until `begin`."""
        if self._task is not None:
            self._task.cancel()

    def reload(self) -> None:
        """Load the table again; a load under way is followed by another.

        Raises InvalidRequest in other modes than full.
        """
        if self._loading is None:
            detail = f"{self._settings.name} is not in cache.mode: full, so it has no reload"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
        self._loading.request()

    def cold_reason(self) -> str | None:
        """Why the dimension does not count as started; None if it does."""
        load, feed = self.load_statistics(), self._feed_statistics()
        return self._warmup.cold_reason(load, feed, self._clock())

    def statistics(self) -> RefreshStatistics:
        """Feed, loads and staleness now. Reads all cache entries."""
        return RefreshStatistics(
            self._staleness_s(),
            self._feed_statistics(),
            self.load_statistics(),
            staleness_limit_s(self._settings, is_followed=self._sources.changes is not None),
        )

    def load_statistics(self) -> LoadStatistics | None:
        """The loads, in full mode; cheap, unlike `statistics`."""
        if self._loading is not None:
            return self._loading.statistics()
        return None if self._sources.table is None else LoadStatistics()

    def _feed_statistics(self) -> FeedStatistics | None:
        if self._feed is not None:
            return self._feed.statistics()
        return None if self._sources.changes is None else FeedStatistics(FeedState.STARTING)

    def _staleness_s(self) -> float | None:
        oldest_s = None
        if self._runner is not None:
            oldest_s = self._runner.state.cache.oldest_age_s(self._clock())
        if oldest_s is None:
            return None
        reported_until = None if self._feed is None else self._feed.reported_until()
        unreported_s = math.inf if reported_until is None else self._clock() - reported_until
        return min(oldest_s, served_for_s(self._settings.cache), unreported_s)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in (self._feed, self._loading):
                if part is not None:
                    tasks.create_task(part.run())


def _cold_reason(load: LoadStatistics, feed: FeedStatistics | None) -> str:
    if load.is_loading:
        expected = "" if load.expected_rows is None else f" of about {load.expected_rows:,}"
        failed = "" if load.last_error is None else f"; an attempt failed: {load.last_error}"
        return f"loading: {load.rows:,}{expected} rows{failed}"
    if feed is not None and feed.state is not FeedState.LIVE:
        why = "" if feed.last_error is None else f": {feed.last_error}"
        return f"its load waits for its feed{why}"
    if load.last_error is not None:
        return f"its load failed: {load.last_error}"
    return "its load has not begun"
