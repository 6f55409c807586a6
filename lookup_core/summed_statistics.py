"""The statistics of a dimension over several states, of which only the last one is at work.

Sums what only ever grows, so that no total goes back; all else is as it is now.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from lookup_core.statistics import DimensionStatistics

K = TypeVar("K")


def summed_statistics(
    former: DimensionStatistics, current: DimensionStatistics
) -> DimensionStatistics:
    """The levels of the current state, and the totals of both."""
    evictions = _sums(former.cache.evictions, current.cache.evictions)
    return replace(
        current,
        outcomes=_sums(former.outcomes, current.outcomes),
        coalesced_keys=former.coalesced_keys + current.coalesced_keys,
        retries=former.retries + current.retries,
        fenced_keys=former.fenced_keys + current.fenced_keys,
        invalidations=_sums(former.invalidations, current.invalidations),
        cache=replace(current.cache, evictions=evictions),
    )


def _sums(former: Mapping[K, int], current: Mapping[K, int]) -> dict[K, int]:
    return {name: former[name] + number for name, number in current.items()}
