"""Keeps a dimension fresh, whichever runner works for it: as a task that begins anew with each.

What is done for one runner stands in `runner_refresh`.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import count

from lookup_core.dimension.flight_table import LookupId
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.staleness_limit import staleness_limit_s
from lookup_core.refresh_statistics import FeedStatistics, LoadStatistics, RefreshStatistics
from lookup_core.settings import DimensionSettings
from service.engine.runner_refresh import RefreshSources, RunnerRefresh
from service.engine.state_runner import StateRunner
from service.engine.waiting_for_changes import WaitingForChanges
from service.engine.warmup import Warmup


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
