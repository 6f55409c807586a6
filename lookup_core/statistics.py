"""Statistics of one dimension: levels and totals for metrics and status pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lookup_core.answer import Outcome
from lookup_core.compatibility import TextEnum
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import DimensionSettings
from lookup_core.sources.splits import SplitProgress


class EvictionReason(TextEnum):
    """The reason why a row left the cache."""

    SIZE = "size"
    EXPIRED = "expired"
    INVALIDATED = "invalidated"
    REPLACED = "replaced"
    PRESSURE = "pressure"


class InvalidationOrigin(TextEnum):
    """The source of an invalidation."""

    ADMIN = "admin"
    CHANGELOG = "changelog"
    NOTIFICATION = "notification"
    FAILOVER = "failover"
    SCHEMA = "schema"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Levels and totals of one cache."""

    rows: int = 0
    bytes: int = 0  # rows, keys and index
    max_bytes: int = 0
    evictions: Mapping[EvictionReason, int] = field(
        default_factory=lambda: dict.fromkeys(EvictionReason, 0)
    )


@dataclass(frozen=True, slots=True)
class SharedStatistics:
    """The shared memory of one cache, and its use by workers."""

    why_private: str | None = "there is no cache yet"  # None: workers may read it
    folder: str | None = None  # absolute, or relative to that of the socket
    bytes: int = 0  # all of its files
    keys: int = 0  # that workers looked up in it


@dataclass(frozen=True, slots=True)
class DimensionStatistics:
    """Levels and totals of one dimension."""

    concurrency_limit: int
    cache: CacheStatistics
    outcomes: Mapping[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    coalesced_keys: int = 0  # keys that joined a query of another lookup
    retries: int = 0
    invalidations: Mapping[InvalidationOrigin, int] = field(  # named keys, or flushed rows
        default_factory=lambda: dict.fromkeys(InvalidationOrigin, 0)
    )
    fenced_keys: int = 0  # read but not cached, since the read may have missed a change
    waiting_keys: int = 0  # without an answer, in all requests
    queued_keys: int = 0  # distinct keys that are not in a batch yet
    queries_in_flight: int = 0
    connection_wait_s: float = 0.0  # total time in which a due query had no connection
    breaker_state: BreakerState = BreakerState.CLOSED
    shared: SharedStatistics = SharedStatistics()


def no_statistics(settings: DimensionSettings) -> DimensionStatistics:
    """The statistics of a dimension before its first lookup."""
    return DimensionStatistics(
        concurrency_limit=settings.batch.max_in_flight,
        cache=CacheStatistics(max_bytes=settings.cache.max_bytes),
    )


class LoadResult(TextEnum):
    """The result of a load of a full table."""

    OK = "ok"
    ERROR = "error"
    OUTDATED = "outdated"  # any row may have changed since; the load is repeated


class UnusedMessage(TextEnum):
    """Why a message of a feed is no change of a row."""

    IGNORED = "ignored"  # it does not concern the table
    UNDECODABLE = "undecodable"  # it counts as a change of the whole table


class AuditResult(TextEnum):
    """The result of a comparison of a row with a read of its table; a row may be read again."""

    AGREED = "agreed"
    SUSPECT = "suspect"  # they differ; the event of the change may follow
    CONTRADICTED = "contradicted"  # no event of the change came
    FAILED = "failed"  # the read failed, so that nothing was compared


@dataclass(frozen=True, slots=True)
class DistrustStatistics:
    """Why an incomplete feed is not trusted yet."""

    found_ago_s: float  # the last contradiction
    least_s: float  # how long it lasts at least from now on; 0 if only comparisons are missing
    agreed: int  # comparisons since then
    needed: int


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """State of a change feed."""

    state: FeedState
    watermark_ms: int = NO_WATERMARK_MS  # no change with an earlier event time follows
    splits: Sequence[SplitProgress] = ()
    last_error: str | None = None  # by split discovery, otherwise by a failing split
    unused_messages: dict[UnusedMessage, int] = field(
        default_factory=lambda: dict.fromkeys(UnusedMessage, 0)
    )
    is_audited: bool = False
    audited_keys: dict[AuditResult, int] = field(
        default_factory=lambda: dict.fromkeys(AuditResult, 0)
    )
    distrust: DistrustStatistics | None = None  # if it is incomplete, also while it is silent
    are_values_refused: bool = False  # rows of events differ from the table
    doubt: str | None = None  # why its events do not show that it reports the table


@dataclass(frozen=True, slots=True)
class LoadStatistics:
    """State of a full table and its loads."""

    is_whole: bool = False
    is_loading: bool = False
    rows: int = 0  # read by the current load, otherwise by the last one
    held_rows: int = 0  # after the last successful load
    expected_rows: int | None = None  # estimate
    last_seconds: float | None = None  # duration of the last successful load
    last_error: str | None = None  # by the current load, otherwise by the last one
    counts: dict[LoadResult, int] = field(default_factory=lambda: dict.fromkeys(LoadResult, 0))
    splits: Sequence[SplitProgress] = ()


@dataclass(frozen=True, slots=True)
class RefreshStatistics:
    """State of the feed and the loads, and the staleness of the cached rows."""

    staleness_s: float | None = None  # upper bound; None without rows
    feed: FeedStatistics | None = None
    load: LoadStatistics | None = None
    staleness_limit_s: float | None = None  # by the settings; None without a bound


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """The memory of the process at the last reading."""

    resident_bytes: int
    used_share: float  # the part of the limit that is in use
    level: int  # 0 to 3, from no pressure to the highest


@dataclass(frozen=True, slots=True)
class CertificateStatistics:
    """The certificate of a listener, and its renewals since the start."""

    expires_s: float  # since the epoch
    taken: int
    refused: int


K = TypeVar("K")


def summed_statistics(
    former: DimensionStatistics, current: DimensionStatistics
) -> DimensionStatistics:
    """The levels of the current state with the totals of both."""
    evictions = _sums(former.cache.evictions, current.cache.evictions)
    return replace(
        current,
        outcomes=_sums(former.outcomes, current.outcomes),
        coalesced_keys=former.coalesced_keys + current.coalesced_keys,
        retries=former.retries + current.retries,
        fenced_keys=former.fenced_keys + current.fenced_keys,
        invalidations=_sums(former.invalidations, current.invalidations),
        cache=replace(current.cache, evictions=evictions),
        shared=replace(current.shared, keys=former.shared.keys + current.shared.keys),
    )


def summed_refresh(former: RefreshStatistics, current: RefreshStatistics) -> RefreshStatistics:
    """The state of the current feed and loads with the totals of both."""
    feed, load = current.feed, current.load
    if feed is not None and former.feed is not None:
        feed = replace(
            feed,
            unused_messages=_sums(former.feed.unused_messages, feed.unused_messages),
            audited_keys=_sums(former.feed.audited_keys, feed.audited_keys),
        )
    if load is not None and former.load is not None:
        load = replace(load, counts=_sums(former.load.counts, load.counts))
    return replace(current, feed=feed, load=load)


def _sums(former: Mapping[K, int], current: Mapping[K, int]) -> dict[K, int]:
    return {name: former[name] + number for name, number in current.items()}
