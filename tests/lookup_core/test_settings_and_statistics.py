"""Settings and statistics of a dimension: documented defaults, all labels, growing totals."""

from lookup_core.answer import Outcome
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import (
    BatchSettings,
    CacheSettings,
    DimensionSettings,
)
from lookup_core.statistics import (
    CacheStatistics,
    DimensionStatistics,
    EvictionReason,
    InvalidationOrigin,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
    no_statistics,
    summed_statistics,
)


def statistics_of(total: int, *, level: int) -> DimensionStatistics:
    """Statistics whose totals and levels are all the same."""
    return DimensionStatistics(
        outcomes=dict.fromkeys(Outcome, total),
        coalesced_keys=total,
        retries=total,
        invalidations=dict.fromkeys(InvalidationOrigin, total),
        fenced_keys=total,
        waiting_keys=level,
        queued_keys=level,
        queries_in_flight=level,
        concurrency_limit=3,
        breaker_state=BreakerState.CLOSED,
        cache=CacheStatistics(level, level, 7, dict.fromkeys(EvictionReason, total)),
    )


def test_statistics_begin_with_zeros() -> None:
    """A new dimension has zeros for all labels, and its limits; no load and no feed."""
    settings = DimensionSettings(
        "customers", cache=CacheSettings(max_bytes=7), batch=BatchSettings(max_in_flight=3)
    )

    assert no_statistics(settings) == statistics_of(0, level=0)
    assert LoadStatistics().counts == dict.fromkeys(LoadResult, 0)
    assert RefreshStatistics() == RefreshStatistics(None, feed=None, load=None)


def test_totals_are_summed_and_levels_are_not() -> None:
    """The totals of a former state are added; the levels are those of the current state."""
    former, current = statistics_of(2, level=8), statistics_of(5, level=6)

    assert summed_statistics(former, current) == statistics_of(7, level=6)
