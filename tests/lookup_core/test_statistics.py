"""Snapshots of a dimension: every label is there from the start, at zero."""

from lookup_core.answer import Outcome
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import BatchSettings, CacheSettings, DimensionSettings
from lookup_core.statistics import (
    CacheStatistics,
    DimensionStatistics,
    EvictionReason,
    InvalidationOrigin,
    no_statistics,
)


def test_nothing_happened_before_the_start() -> None:
    """A dimension that has not begun shows zeros for all labels, and the limits it will have."""
    settings = DimensionSettings(
        "customers", cache=CacheSettings(max_bytes=7), batch=BatchSettings(max_in_flight=3)
    )

    assert no_statistics(settings) == DimensionStatistics(
        outcomes=dict.fromkeys(Outcome, 0),
        coalesced_keys=0,
        retries=0,
        invalidations=dict.fromkeys(InvalidationOrigin, 0),
        fenced_keys=0,
        waiting_keys=0,
        queued_keys=0,
        queries_in_flight=0,
        concurrency_limit=3,
        breaker_state=BreakerState.CLOSED,
        cache=CacheStatistics(0, 0, 7, dict.fromkeys(EvictionReason, 0)),
    )


def test_labels_are_the_metrics_words() -> None:
    """The words of the closed enums are the label values that dashboards ask for."""
    assert [str(reason) for reason in EvictionReason] == [
        "size",
        "expired",
        "invalidated",
        "replaced",
        "pressure",
    ]
    assert [str(origin) for origin in InvalidationOrigin] == [
        "admin",
        "changelog",
        "notification",
        "failover",
        "schema",
    ]
