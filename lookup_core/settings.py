"""Settings of one dimension in seconds and bytes; `service.config` parses and validates them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_core.compatibility import TextEnum

LEAST_CACHE_BYTES = 16 * 1024  # the arrays of an empty cache are 13 KiB


class CacheMode(TextEnum):
    """Which rows of a dimension are cached."""

    PARTIAL = "partial"  # read-through: the rows of earlier lookups
    FULL = "full"  # the whole table, kept fresh by changes or reloads
    NONE = "none"  # no rows; concurrent lookups of a key still share a query


class CacheShare(TextEnum):
    """Whether workers on the same machine read a cache themselves."""

    AUTO = "auto"  # if a file system in memory can be shared with them
    OFF = "off"  # no: all lookups go by the stream


class WhileLoading(TextEnum):
    """Lookups before the first load of a full table."""

    WAIT = "wait"  # for the end of the load, within their timeout
    FETCH = "fetch"  # query the backend; rows are not cached


class Match(TextEnum):
    """The answer for a key with several rows; without it, an error."""

    FIRST = "first"  # in the order of the backend
    ALL = "all"  # each column is a list


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Bounds of the cache; an entry expires when its age reaches its time to live.

    `ttl_jitter` shortens the time to live by up to this share, depending on the key, so that rows
    of one query do not expire together. Expired rows stay while they may be served stale.
    """

    mode: CacheMode = CacheMode.PARTIAL
    share: CacheShare = CacheShare.AUTO
    max_bytes: int = 256 * 1024 * 1024
    ttl_s: float = 600.0
    negative_ttl_s: float = 5.0
    ttl_jitter: float = 0.0  # in [0, 1)
    stale_while_revalidate_s: float = 0.0  # after `ttl_s`: stale answer, background refresh
    stale_if_error_s: float = 0.0  # after `ttl_s`: stale answer if the query fails

    @property
    def stale_s(self) -> float:
        """The time of stale service; for rows only, as the row of a negative entry may exist."""
        return max(self.stale_while_revalidate_s, self.stale_if_error_s)


@dataclass(frozen=True, slots=True)
class ReloadSettings:
    """Schedule of reloads: periodic, at a time of day, or neither."""

    every_s: float | None = None  # from the end of a load to the next one
    at_s: float | None = None  # since midnight UTC


@dataclass(frozen=True, slots=True)
class FullSettings:
    """Loads of full cache mode."""

    while_loading: WhileLoading = WhileLoading.WAIT
    warmup_max_wait_s: float = 600.0  # then the dimension counts as started without a load
    reload: ReloadSettings = field(default_factory=ReloadSettings)
    load_spread_s: float = 0.0  # random delay of a load without a loaded table, at most this


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Audit of a feed: some cached rows are read again, at random times `every_s` apart."""

    every_s: float = 60.0  # on average
    keys: int = 50  # in one query
    grace_s: float = 30.0  # how far the feed's claim must be beyond a read that differs


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """Limits of a live change feed; beyond them, cached rows are not served."""

    max_silence_s: float = 10.0  # since the last sign of life
    max_staleness_s: float | None = None  # age of the source's latest time, with heartbeats
    max_drift_s: float | None = None  # a split further ahead of the slowest is paused
    audit: AuditSettings | None = None  # None: no row is audited


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Batches of keys; with `linger_s` = 0, a batch is sent as soon as a slot is free."""

    max_keys: int = 10_000
    linger_s: float = 0.0
    max_in_flight: int = 2
    max_queries_per_s: int | None = None  # retries included; None: no limit


@dataclass(frozen=True, slots=True)
class OnMissingSettings:
    """Retries for missing keys, `delay_s` apart, for late-arriving dimension rows."""

    max_retries: int = 0
    delay_s: float = 1.0
    retry_if: str | None = None  # a column; a row with NULL in it is retried like a missing key

    @property
    def or_none(self) -> "OnMissingSettings | None":
        """These settings; None without retries."""
        return self if self.max_retries else None


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Retries of failed queries, with exponential backoff."""

    max_retries: int = 2
    initial_s: float = 0.05
    max_s: float = 1.0
    multiplier: float = 2.0
    on_missing: OnMissingSettings = field(default_factory=OnMissingSettings)


@dataclass(frozen=True, slots=True)
class DimensionSettings:
    """All settings of one dimension."""

    name: str
    cache: CacheSettings = field(default_factory=CacheSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    full: FullSettings = field(default_factory=FullSettings)
    feed: FeedSettings = field(default_factory=FeedSettings)
    match: Match | None = None  # None: a key has one row at most
    default: Mapping[str, object] | None = None  # {column: value} of the row for missing keys
    timeout_s: float = 2.0  # for one query, and by default for a lookup over HTTP with its retries
    wait_for_dimension_s: float = 0.0  # maximal wait for changes up to the event time
    max_waiting_keys: int = 200_000  # beyond: Overloaded, before any work
