"""Every metric of the service: name with unit, help and labels, as constants.

Apart from what fills them, so that dashboards, rules and docs have one page to agree with.
"""

from dataclasses import dataclass
from enum import StrEnum


class Label(StrEnum):
    """The only labels that there are; a key is never one."""

    DIMENSION = "dimension"
    OUTCOME = "outcome"
    RESULT = "result"
    REASON = "reason"
    KIND = "kind"
    ORIGIN = "origin"
    CHANNEL_STATE = "channel_state"


class CreditKind(StrEnum):
    """Whose credit it is."""

    EXCLUSIVE = "exclusive"  # a channel's own share
    FLOATING = "floating"  # of the common pool, because of a backlog


class ChannelState(StrEnum):
    """Whether a channel holds watermarks back."""

    ACTIVE = "active"
    IDLE = "idle"


class SourceKind(StrEnum):
    """What is read."""

    FEED = "feed"  # the changes of a table
    LOAD = "load"  # all its rows


class RenewalResult(StrEnum):
    """What became of a new certificate."""

    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name of the exposition; counters carry their `_total`."""

    name: str
    help: str
    labels: tuple[Label, ...] = (Label.DIMENSION,)


LOOKUPS = Metric(
    "sidelook_lookups_total",
    "Keys looked up, by how the lookup ended: all of a request, the distinct ones of a batch.",
    (Label.DIMENSION, Label.OUTCOME),
)
LOOKUP_SECONDS = Metric(
    "sidelook_lookup_seconds", "Time from a lookup request to its last answer, of all its keys."
)
BACKEND_QUERIES = Metric(
    "sidelook_backend_queries_total",
    "Queries sent to the dimension's store, retries included, by how they ended.",
    (Label.DIMENSION, Label.RESULT),
)
BACKEND_QUERY_SECONDS = Metric(
    "sidelook_backend_query_seconds", "Duration of the queries to the dimension's store."
)
BACKEND_BATCH_KEYS = Metric(
    "sidelook_backend_batch_keys", "Distinct keys in each query to the dimension's store."
)
COALESCED_KEYS = Metric(
    "sidelook_coalesced_keys_total",
    "Keys that waited for a query already under way instead of being fetched again.",
)
CACHE_ROWS = Metric("sidelook_cache_rows", "Entries in the cache, known missing keys included.")
CACHE_BYTES = Metric("sidelook_cache_bytes", "Bytes that the cache holds: rows, keys and index.")
CACHE_MAX_BYTES = Metric(
    "sidelook_cache_max_bytes", "Bytes that the cache may hold now; less than configured if short."
)
CACHE_EVICTIONS = Metric(
    "sidelook_cache_evictions_total",
    "Entries that left the cache, by why.",
    (Label.DIMENSION, Label.REASON),
)
IN_FLIGHT_RECORDS = Metric(
    "sidelook_in_flight_records", "Keys of requests and streams that wait for their answer."
)
BACKLOG_RECORDS = Metric(
    "sidelook_backlog_records", "Records that clients have ready and may not send yet."
)
CREDIT_RECORDS = Metric(
    "sidelook_credit_records",
    "Records that clients may have unanswered, by whose credit it is.",
    (Label.DIMENSION, Label.KIND),
)
CHANNELS = Metric(
    "sidelook_channels",
    "Open channels, by whether they have something to say for now.",
    (Label.DIMENSION, Label.CHANNEL_STATE),
)
STREAM_WATERMARK_SECONDS = Metric(
    "sidelook_stream_watermark_seconds",
    "Least watermark of the active channels that are not behind it, event time as Unix time.",
)
DIMENSION_AVAILABLE = Metric(
    "sidelook_dimension_available",
    "Whether lookups are taken (1), or refused until the store has described its table (0).",
)
DIMENSION_STALENESS_SECONDS = Metric(
    "sidelook_dimension_staleness_seconds",
    "Upper bound of how far rows that are served may lag the table. Absent while none is held.",
)
DIMENSION_STALENESS_LIMIT_SECONDS = Metric(
    "sidelook_dimension_staleness_limit_seconds",
    "How far rows may lag the table by the configuration. Absent where that sets no bound.",
)
DIMENSION_WATERMARK_SECONDS = Metric(
    "sidelook_dimension_watermark_seconds",
    "No change of an earlier event time follows; Unix time. Absent until the feed tells a time.",
)
DIMENSION_FEED_LIVE = Metric(
    "sidelook_dimension_feed_live",
    "Whether the feed of changes is alive and caught up (1), or the cache is passed by (0).",
)
DIMENSION_FEED_BACKLOG = Metric(
    "sidelook_dimension_feed_backlog",
    "Changes that the feed's source has, as far as it says, and that were not taken yet.",
)
DIMENSION_FEED_UNUSED_MESSAGES = Metric(
    "sidelook_dimension_feed_unused_messages_total",
    "Messages that told no change of a row, by why; for an undecodable one all is forgotten.",
    (Label.DIMENSION, Label.REASON),
)
DIMENSION_WHOLE = Metric(
    "sidelook_dimension_whole",
    "Whether the table is held whole (1), or waits for a load that ends well (0).",
)
DIMENSION_LOADING = Metric(
    "sidelook_dimension_loading", "Whether the whole table is being read (1), or not (0)."
)
DIMENSION_LOADS = Metric(
    "sidelook_dimension_loads_total",
    "Loads of the whole table by how they ended; outdated: all may have changed meanwhile.",
    (Label.DIMENSION, Label.RESULT),
)
DIMENSION_LOAD_ROWS = Metric(
    "sidelook_dimension_load_rows",
    "Rows of the whole table read by the load under way, else by the last one.",
)
DIMENSION_LOAD_SECONDS = Metric(
    "sidelook_dimension_load_seconds",
    "Duration of the last load of the whole table that ended well.",
)
DIMENSION_SPLITS = Metric(
    "sidelook_dimension_splits",
    "Parts of the sources that load and follow the dimension, by who has them.",
    (Label.DIMENSION, Label.KIND),
)
DIMENSION_SPLIT_FAILURES = Metric(
    "sidelook_dimension_split_failures_total",
    "Tries to read a part of a source that failed, of the feed and of the load under way.",
    (Label.DIMENSION, Label.KIND),
)
FENCED_KEYS = Metric(
    "sidelook_fenced_keys_total",
    "Keys that were read and answered, and not kept: the read may have missed a change.",
)
INVALIDATIONS = Metric(
    "sidelook_invalidations_total",
    "Keys dropped from the cache because they may have changed, by who said so.",
    (Label.DIMENSION, Label.ORIGIN),
)
RETRIES = Metric(
    "sidelook_retries_total", "Further tries: of queries that failed, and for keys without a row."
)
QUERIES_IN_FLIGHT = Metric(
    "sidelook_queries_in_flight", "Queries that are at the dimension's store now."
)
QUEUED_KEYS = Metric(
    "sidelook_queued_keys", "Distinct keys that wait for a query of theirs to begin."
)
CONCURRENCY_LIMIT = Metric(
    "sidelook_concurrency_limit", "Queries to the dimension's store that may run at once."
)
BREAKER_STATE = Metric(
    "sidelook_breaker_state",
    "Whether queries go to the dimension's store: 0 yes, 1 it is being probed, 2 they are held.",
)
LOOKUP_USES_INDEX = Metric(
    "sidelook_lookup_uses_index",
    "Whether the dimension's store finds keys by an index (1), or reads all rows (0).",
)
MEMORY_RESIDENT_BYTES = Metric(
    "sidelook_memory_resident_bytes", "Memory of the process, as the kernel counts it.", ()
)
MEMORY_USED_RATIO = Metric(
    "sidelook_memory_used_ratio",
    "Growth since the start by limits.memory, or the control group's use by its limit if more.",
    (),
)
MEMORY_PRESSURE_LEVEL = Metric(
    "sidelook_memory_pressure_level",
    "What is given up: 0 nothing, 1 cached rows, 2 new credit and channels, too, 3 requests, too.",
    (),
)
EVENT_LOOP_LAG_SECONDS = Metric(
    "sidelook_event_loop_lag_seconds",
    "Longest delay of a timer of the event loop in the last 15 seconds.",
    (),
)
TLS_CERTIFICATE_EXPIRY_SECONDS = Metric(
    "sidelook_tls_certificate_expiry_seconds",
    "When the certificate of listen.tls ends: a moment, in seconds since 1970. Absent without TLS.",
    (),
)
TLS_CERTIFICATE_RENEWALS = Metric(
    "sidelook_tls_certificate_renewals_total",
    "New certificate files that were taken, or refused, so that the old certificate stayed.",
    (Label.RESULT,),
)
BUILD_INFO = Metric(
    "sidelook_build_info", "Always 1; the kind is the running version.", (Label.KIND,)
)
