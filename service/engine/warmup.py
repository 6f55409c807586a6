"""Warm-up: the start of one dimension, and what it waits for.

A dimension in full mode is started once its table was loaded, or after its maximal wait.
"""

from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.statistics import FeedStatistics, LoadStatistics, RefreshStatistics


class Warmup:
    """The start of one dimension; times are monotonic seconds."""

    def __init__(self, settings: DimensionSettings, *, began_at: float) -> None:
        self._is_over = settings.cache.mode is not CacheMode.FULL  # for good, once true
        self._latest_end = began_at + settings.full.warmup_max_wait_s

    def end(self) -> None:
        """The table is loaded."""
        self._is_over = True

    def cold_reason(self, refresh: RefreshStatistics, now: float) -> str | None:
        """What the start waits for; None once it is over."""
        if self._is_over or now >= self._latest_end:
            return None
        return _cold_reason(refresh.load or LoadStatistics(), refresh.feed)


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
