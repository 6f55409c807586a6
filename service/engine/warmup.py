"""Whether a dimension has what it needs to be counted as started, and if not, what it waits for.

Only a table that is to be held whole is waited for; its load is others' business.
"""

from lookup_core.refresh_statistics import LoadStatistics
from lookup_core.settings import CacheMode, DimensionSettings


class Warmup:
    """One dimension's start; once it counts as started, it does so for good."""

    def __init__(self, settings: DimensionSettings, *, began_at: float) -> None:
        self._is_over = settings.cache.mode is not CacheMode.FULL
        self._latest_end = began_at + settings.full.warmup_max_wait_s

    def cold_reason(self, load: LoadStatistics | None, now: float) -> str | None:
        """What is waited for; None when there is nothing, or when it has taken too long."""
        self._is_over |= now >= self._latest_end or (load is not None and load.is_whole)
        if self._is_over:
            return None
        if load is not None and load.is_loading:
            about = "" if load.expected_rows is None else f" of about {load.expected_rows:,}"
            return f"loading: {load.rows:,}{about} rows"
        if load is not None and load.last_error:
            return f"its load failed: {load.last_error}"
        return "its load has not begun"
