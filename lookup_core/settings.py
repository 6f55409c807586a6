"""How one dimension is to behave, as plain numbers; parsed and validated elsewhere.

Seconds and bytes only: units and texts end at the border (`service.config`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CacheMode(StrEnum):
    """Whether a dimension's rows are kept, and how they come in."""

    PARTIAL = "partial"  # read through: a row is kept after it was asked for
    FULL = "full"  # the whole table is loaded, and followed or loaded anew
    NONE = "none"  # every lookup asks the backend (flights are still shared)


class WhileLoading(StrEnum):
    """What becomes of lookups before a table that is to be held whole is so."""

    WAIT = "wait"  # for the end of the load, as long as their timeout allows
    FETCH = "fetch"  # each asks the backend, and nothing is kept


class Match(StrEnum):
    """What a key with several rows is answered with, where that is no error."""

    FIRST = "first"  # in the backend's order
    ALL = "all"  # each column is a list


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Bounds of the cache; an entry is expired at age >= its time to live.

    That time is shorter by up to `ttl_jitter` of it, by the key, so that what was read together is
    not read anew together. A row that is expired stays as long as it may be served stale.
    """

    mode: CacheMode = CacheMode.PARTIAL
    max_bytes: int = 256 * 1024 * 1024
    ttl_s: float = 600.0
    negative_ttl_s: float = 5.0
    ttl_jitter: float = 0.0  # in [0, 1)
    stale_while_revalidate_s: float = 0.0  # beyond the ttl: answered at once, and read anew
    stale_if_error_s: float = 0.0  # beyond the ttl: the answer where reading anew fails


@dataclass(frozen=True, slots=True)
class ReloadSettings:
    """When to load a whole table anew, by itself: every so often, at a time of day, or never."""

    every_s: float | None = None  # from the end of a load to the next
    at_s: float | None = None  # since midnight UTC


@dataclass(frozen=True, slots=True)
class FullSettings:
    """How a table is loaded that is held whole."""

    while_loading: WhileLoading = WhileLoading.WAIT
    warmup_max_wait_s: float = 600.0  # then the dimension counts as started, loaded or not
    reload: ReloadSettings = field(default_factory=ReloadSettings)


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What is asked of a feed of changes, lest it is not believed."""

    max_silence_s: float = 10.0  # without any sign of life
    max_staleness_s: float | None = None  # of its source's clock, if that tells the time
    max_drift_s: float | None = None  # a split that is further ahead of the slowest is paused


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How keys become queries; `linger_s` = 0 sends at once when a slot is free."""

    max_keys: int = 500
    linger_s: float = 0.0
    max_in_flight: int = 8


@dataclass(frozen=True, slots=True)
class OnMissingSettings:
    """Tries after a row was not found, `delay_s` apart, for rows that come after their records."""

    max_retries: int = 0
    delay_s: float = 1.0


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Tries after the first one of a failed query, with exponential backoff between them."""

    max_retries: int = 2
    initial_s: float = 0.05
    max_s: float = 1.0
    multiplier: float = 2.0
    on_missing: OnMissingSettings = field(default_factory=OnMissingSettings)


@dataclass(frozen=True, slots=True)
class DimensionSettings:
    """All that the engine of one dimension needs to know."""

    name: str
    cache: CacheSettings = field(default_factory=CacheSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    full: FullSettings = field(default_factory=FullSettings)
    feed: FeedSettings = field(default_factory=FeedSettings)
    default: Mapping[str, object] | None = None  # {column: value} of the row for missing ones
    timeout_s: float = 2.0  # of one lookup, retries included, unless the caller names another
    wait_for_dimension_s: float = 0.0  # at most, for changes up to the time of the record
    max_waiting_keys: int = 200_000  # beyond: Overloaded, before any work
