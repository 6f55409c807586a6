"""Snapshots of what a dimension did and holds; counted by the core, read by collectors.

Numbers only: no metric names, no labels' texts beyond the closed enums.
"""

from dataclasses import dataclass
from enum import StrEnum

from lookup_core.outcome import Outcome


class EvictionReason(StrEnum):
    """Why a row left the cache."""

    SIZE = "size"
    EXPIRED = "expired"
    INVALIDATED = "invalidated"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Levels and totals of one cache."""

    rows: int
    bytes: int  # all that it holds: rows, keys, index
    max_bytes: int
    evictions: dict[EvictionReason, int]


@dataclass(frozen=True, slots=True)
class DimensionStatistics:
    """Levels and totals of one dimension."""

    outcomes: dict[Outcome, int]  # lookups (keys) that ended so, since the start
    coalesced_keys: int  # keys that joined a flight instead of being fetched again
    retries: int
    invalidated: int  # keys named by invalidations, or rows flushed by them
    waiting_keys: int  # keys of all requests that have no answer yet
    queued_keys: int  # distinct keys not yet in a batch
    queries_in_flight: int
    concurrency_limit: int
    oldest_row_age_s: float  # upper bound of staleness; 0 when nothing is cached
    cache: CacheStatistics
