"""Totals never go back when a state follows another one."""

from dataclasses import replace

from lookup_core.answer import Outcome
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import (
    DimensionStatistics,
    EvictionReason,
    InvalidationOrigin,
    no_statistics,
    summed_statistics,
)

NOTHING = no_statistics(DimensionSettings("customers"))


def statistics_of(number: int) -> DimensionStatistics:
    """All figures are that number."""
    cache = replace(
        NOTHING.cache,
        rows=number,
        bytes=number,
        evictions=dict.fromkeys(EvictionReason, number),
    )
    return replace(
        NOTHING,
        outcomes=dict.fromkeys(Outcome, number),
        coalesced_keys=number,
        retries=number,
        invalidations=dict.fromkeys(InvalidationOrigin, number),
        fenced_keys=number,
        waiting_keys=number,
        queries_in_flight=number,
        cache=cache,
    )


def test_totals_are_summed_and_levels_are_not() -> None:
    """What was counted before counts on; what is held is held by the current state only."""
    summed = summed_statistics(statistics_of(2), statistics_of(5))

    levels = statistics_of(5)
    assert summed == replace(
        statistics_of(7),
        waiting_keys=levels.waiting_keys,
        queries_in_flight=levels.queries_in_flight,
        cache=replace(levels.cache, evictions=dict.fromkeys(EvictionReason, 7)),
    )


def test_nothing_before_changes_nothing() -> None:
    """The first state's statistics are those of the dimension."""
    assert summed_statistics(NOTHING, statistics_of(3)) == statistics_of(3)
