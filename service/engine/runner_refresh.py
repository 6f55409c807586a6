"""What keeps one runner's rows fresh: the feed that follows changes, and the loads of its table.

Puts the two together: changes are followed before a load begins. Ends with its runner.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from lookup_core.dimension.flight_table import LookupId
from lookup_core.freshness.staleness_limit import served_for_s
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.statistics import InvalidationOrigin
from service.engine.feed import Feed, FeedParts
from service.engine.loading import Loading, LoadingParts
from service.engine.state_runner import StateRunner
from service.engine.waiting_for_changes import WaitingForChanges
from service.sources.interface import Source


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
