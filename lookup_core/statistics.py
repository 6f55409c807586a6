"""Snapshots of what a dimension did and holds; counted by the core, read by collectors.

Numbers only: no metric names, no labels' texts beyond the closed enums.
"""

from dataclasses import dataclass
from enum import StrEnum

from lookup_core.outcome import Outcome
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import DimensionSettings


class EvictionReason(StrEnum):
    """Why a row left the cache."""

    SIZE = "size"
    EXPIRED = "expired"
    INVALIDATED = "invalidated"
    REPLACED = "replaced"
    PRESSURE = "pressure"


class InvalidationOrigin(StrEnum):
    """Who said that rows may have changed."""

    ADMIN = "admin"
    CHANGELOG = "changelog"
    NOTIFICATION = "notification"
    FAILOVER = "failover"
    SCHEMA = "schema"


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
    invalidations: dict[InvalidationOrigin, int]  # keys named, or rows flushed
    fenced_keys: int  # read and not kept: the read may have missed a change
    waiting_keys: int  # keys of all requests that have no answer yet
    queued_keys: int  # distinct keys not yet in a batch
    queries_in_flight: int
    concurrency_limit: int
    breaker_state: BreakerState
    cache: CacheStatistics


def no_statistics(settings: DimensionSettings) -> DimensionStatistics:
    """The statistics of a dimension that has not begun."""
    return DimensionStatistics(
        outcomes=dict.fromkeys(Outcome, 0),
        coalesced_keys=0,
        retries=0,
        invalidations=dict.fromkeys(InvalidationOrigin, 0),
        fenced_keys=0,
        waiting_keys=0,
        queued_keys=0,
        queries_in_flight=0,
        concurrency_limit=settings.batch.max_in_flight,
        breaker_state=BreakerState.CLOSED,
        cache=CacheStatistics(
            rows=0,
            bytes=0,
            max_bytes=settings.cache.max_bytes,
            evictions=dict.fromkeys(EvictionReason, 0),
        ),
    )
