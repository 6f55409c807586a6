"""Snapshots of what a dimension did and holds, for metrics and for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from lookup_core.answer import Outcome
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import DimensionSettings
from lookup_core.sources.splits import SplitProgress
from lookup_core.watermark_valve import NO_WATERMARK_MS


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


class LoadResult(StrEnum):
    """How a load of a whole table ended."""

    OK = "ok"
    ERROR = "error"
    OUTDATED = "outdated"  # any row may have changed meanwhile; it is begun anew


class UnusedMessage(StrEnum):
    """Why a message of a feed tells no change of a row."""

    IGNORED = "ignored"  # it says nothing of the table
    UNDECODABLE = "undecodable"  # it counts as a change of the whole table


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """What is known of the changes that are followed."""

    state: FeedState
    watermark_ms: int = NO_WATERMARK_MS  # no change of an earlier event time follows
    splits: Sequence[SplitProgress] = ()
    # Of the last search for splits, if it failed; else of a split that has not got on since.
    last_error: str | None = None
    unused_messages: dict[UnusedMessage, int] = field(
        default_factory=lambda: dict.fromkeys(UnusedMessage, 0)
    )


@dataclass(frozen=True, slots=True)
class LoadStatistics:
    """What is known of the table that is held whole."""

    is_whole: bool = False
    is_loading: bool = False
    rows: int = 0  # read by the load under way, else by the last one
    held_rows: int = 0  # of the former load, as long as the next one has not ended well
    expected_rows: int | None = None  # about
    last_seconds: float | None = None  # of the last one that ended well
    last_error: str | None = None  # of a try of the load under way, else of the last one
    counts: dict[LoadResult, int] = field(default_factory=lambda: dict.fromkeys(LoadResult, 0))
    splits: Sequence[SplitProgress] = ()


@dataclass(frozen=True, slots=True)
class RefreshStatistics:
    """Both, where there are such; `staleness_s`: how far what is held may lag its table.

    None while nothing is held: zero would be taken for fresh. `staleness_limit_s` is how far it may
    by the settings, None where they set no bound.
    """

    staleness_s: float | None = None
    feed: FeedStatistics | None = None
    load: LoadStatistics | None = None
    staleness_limit_s: float | None = None


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
