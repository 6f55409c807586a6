"""Statistics of a dimension: totals outlive a state, levels do not."""

from lookup_core.answer import Outcome
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.statistics import (
    CacheStatistics,
    DimensionStatistics,
    EvictionReason,
    InvalidationOrigin,
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


def test_totals_are_summed_and_levels_are_not() -> None:
    """The totals of a former state are added; the levels are those of the current state."""
    former, current = statistics_of(2, level=8), statistics_of(5, level=6)

    assert summed_statistics(former, current) == statistics_of(7, level=6)
