"""Whether a dimension has what it needs to be counted as started, and if not, what it waits for.

Only a table that is to be held whole is waited for; its load is others' business.
"""

from lookup_core.freshness.feed_health import FeedState
from lookup_core.refresh_statistics import FeedStatistics, LoadStatistics
from lookup_core.settings import CacheMode, DimensionSettings


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
