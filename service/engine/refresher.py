"""Refresher of one dimension: its feed and loads, and the end of its start."""

import asyncio
import math
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
from service.engine.running_dimension import RunningDimension


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
    """Feed, loads and staleness of one running dimension; totals of the former one count on."""

    def __init__(
        self,
        running: RunningDimension,
        sources: RefreshSources,
        *,
        former: RefreshStatistics,
    ) -> None:
        self._running = running
        self._feed: Feed | None = None
        self._loading: Loading | None = None
        if sources.changes is not None:
            self._feed = Feed(
                running,
                sources.changes,
                origin=sources.origin,
                former=former.feed or FeedStatistics(FeedState.STARTING),
            )
        table = running.state.local.table
        if table is not None and sources.table is not None:
            self._loading = Loading(
                running, sources.table, table=table, feed=self._feed, former=former.load
            )

    async def run(self) -> None:
        """Follow the changes and load the table, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self._feed, self._loading):
                if part is not None:
                    tasks.create_task(part.run())

    def reload(self) -> None:
        """Load the table again; a load under way is followed by another.

        Raises InvalidRequest in other modes than full.
        """
        if self._loading is None:
            detail = f"{self._running.name} is not in cache.mode: full, so it has no reload"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
        self._loading.is_requested.set()

    def statistics(self) -> RefreshStatistics:
        """Feed, loads and staleness now. Reads all cache entries."""
        is_followed = self._feed is not None
        limit_s = staleness_limit_s(self._running.settings, is_followed=is_followed)
        return RefreshStatistics(
            self._staleness_s(), self.feed_statistics(), self.load_statistics(), limit_s
        )

    def feed_statistics(self) -> FeedStatistics | None:
        """The feed, if there is one; cheap."""
        return None if self._feed is None else self._feed.statistics()

    def load_statistics(self) -> LoadStatistics | None:
        """The loads, in full mode; cheap, unlike `statistics`."""
        return None if self._loading is None else self._loading.statistics()

    def _staleness_s(self) -> float | None:
        now = self._running.clock()
        oldest_s = self._running.state.local.cache.oldest_age_s(now)
        if oldest_s is None:
            return None
        reported_until = None if self._feed is None else self._feed.reported_until()
        unreported_s = math.inf if reported_until is None else now - reported_until
        return min(oldest_s, served_for_s(self._running.settings.cache), unreported_s)


def not_refreshed(settings: DimensionSettings, sources: RefreshSources) -> RefreshStatistics:
    """The statistics before the first description."""
    is_followed = sources.changes is not None
    return RefreshStatistics(
        None,
        FeedStatistics(FeedState.STARTING) if is_followed else None,
        LoadStatistics() if settings.cache.mode is CacheMode.FULL else None,
        staleness_limit_s(settings, is_followed=is_followed),
    )


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
