"""Refresher of one dimension: its feed and loads, and the end of its start."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.freshness.feed_health import FeedState, served_for_s, staleness_limit_s
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.statistics import (
    FeedStatistics,
    InvalidationOrigin,
    LoadStatistics,
    RefreshStatistics,
)
from lookup_core.table.full_table import FullTable
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


class Refresher:
    """Feed, loads and staleness of one running dimension."""

    def __init__(self, running: RunningDimension, sources: RefreshSources) -> None:
        self._running = running
        self._feed: Feed | None = None
        self._loading: Loading | None = None
        if sources.changes is not None:
            self._feed = Feed(running, sources.changes, origin=sources.origin)
        cache = running.state.local.cache
        if sources.table is not None and isinstance(cache, FullTable):
            self._loading = Loading(running, sources.table, table=cache, feed=self._feed)

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
            detail = f"{self._running.parts.name} is not in cache.mode: full, so it has no reload"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
        self._loading.is_requested.set()

    def statistics(self) -> RefreshStatistics:
        """Feed, loads and staleness now. Reads all cache entries."""
        return replace(self.progress(), staleness_s=self._staleness_s())

    def progress(self) -> RefreshStatistics:
        """Feed and loads now; cheap, as it leaves the staleness out."""
        settings, is_followed = self._running.parts.settings, self._feed is not None
        return RefreshStatistics(
            feed=None if self._feed is None else self._feed.statistics(),
            load=None if self._loading is None else self._loading.statistics(),
            staleness_limit_s=staleness_limit_s(settings, is_followed=is_followed),
        )

    def _staleness_s(self) -> float | None:
        now = self._running.parts.clock()
        oldest_s = self._running.state.local.cache.oldest_age_s(now)
        if oldest_s is None:
            return None
        reported_until = None if self._feed is None else self._feed.reported_until()
        unreported_s = math.inf if reported_until is None else now - reported_until
        return min(oldest_s, served_for_s(self._running.parts.settings.cache), unreported_s)


def not_refreshed(settings: DimensionSettings, sources: RefreshSources) -> RefreshStatistics:
    """The statistics before the first description."""
    is_followed = sources.changes is not None
    return RefreshStatistics(
        None,
        FeedStatistics(FeedState.STARTING) if is_followed else None,
        LoadStatistics() if settings.cache.mode is CacheMode.FULL else None,
        staleness_limit_s(settings, is_followed=is_followed),
    )
