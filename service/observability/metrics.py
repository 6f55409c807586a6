"""Metrics of the sidecar as constants: names with units, help texts and labels.

`collector` and `prometheus_observer` fill them; dashboards, rules and docs use the same names.
"""

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum


class Label(StrEnum):
    """All labels; a key is never one."""

    DIMENSION = "dimension"
    OUTCOME = "outcome"
    RESULT = "result"
    REASON = "reason"
    KIND = "kind"
    ORIGIN = "origin"
    CHANNEL_STATE = "channel_state"


class CreditKind(StrEnum):
    """The source of credit."""

    EXCLUSIVE = "exclusive"  # the channel's own share
    FLOATING = "floating"  # lent from the shared pool for a backlog


class ChannelState(StrEnum):
    """Whether a channel holds watermarks back."""

    ACTIVE = "active"
    IDLE = "idle"


class SourceKind(StrEnum):
    """What is read."""

    FEED = "feed"  # the changes of a table
    LOAD = "load"  # all its rows


class RenewalResult(StrEnum):
    """The result of a certificate's renewal."""

    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family; the name of a counter ends with `_total`."""

    name: str
    help: str
    labels: tuple[Label, ...] = (Label.DIMENSION,)
    _: KW_ONLY
    is_histogram: bool = False

    @property
    def type(self) -> str:
        """The type of Prometheus."""
        if self.is_histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


LOOKUPS = Metric(
    "sidelook_lookups_total",
    "Keys looked up, by outcome: all keys of an HTTP request, distinct keys of a stream's batch, "
    "each record in shared memory.",
    (Label.DIMENSION, Label.OUTCOME),
)
LOOKUP_SECONDS = Metric(
    "sidelook_lookup_seconds",
    "Time from a lookup, of any number of keys, to its last answer.",
    is_histogram=True,
)
BACKEND_QUERIES = Metric(
    "sidelook_backend_queries_total",
    "Queries sent to the backend, retries included, by result.",
    (Label.DIMENSION, Label.RESULT),
)
BACKEND_QUERY_SECONDS = Metric(
    "sidelook_backend_query_seconds", "Duration of the queries to the backend.", is_histogram=True
)
BACKEND_BATCH_KEYS = Metric(
    "sidelook_backend_batch_keys", "Distinct keys in each query to the backend.", is_histogram=True
)
COALESCED_KEYS = Metric(
    "sidelook_coalesced_keys_total", "Keys that joined a query in flight instead of a new one."
)
CACHE_ROWS = Metric("sidelook_cache_rows", "Cache entries, negative entries included.")
CACHE_BYTES = Metric("sidelook_cache_bytes", "Size of the cache: rows, keys and index.")
CACHE_MAX_BYTES = Metric(
    "sidelook_cache_max_bytes",
    "Current bound of the cache; less than configured under memory pressure.",
)
CACHE_EVICTIONS = Metric(
    "sidelook_cache_evictions_total",
    "Entries removed from the cache, by reason.",
    (Label.DIMENSION, Label.REASON),
)
CACHE_IS_SHARED = Metric(
    "sidelook_cache_shared", "1: workers on this machine may read the cache; 0: they may not."
)
SHARED_CACHE_BYTES = Metric(
    "sidelook_shared_cache_bytes", "Size of the files of the cache in shared memory."
)
SHARED_LOOKUPS = Metric(
    "sidelook_shared_lookups_total",
    "Keys that workers looked up in shared memory; sidelook_lookups_total includes them.",
)
IN_FLIGHT_RECORDS = Metric(
    "sidelook_in_flight_records", "Keys of requests and streams without an answer yet."
)
BACKLOG_RECORDS = Metric(
    "sidelook_backlog_records", "Records that are ready in clients and wait for credit."
)
CREDIT_RECORDS = Metric(
    "sidelook_credit_records",
    "Records that clients may have in flight, by kind of credit.",
    (Label.DIMENSION, Label.KIND),
)
CHANNELS = Metric(
    "sidelook_channels",
    "Open channels by state; an idle channel has had no input for a while.",
    (Label.DIMENSION, Label.CHANNEL_STATE),
)
STREAM_WATERMARK_SECONDS = Metric(
    "sidelook_stream_watermark_seconds",
    "Minimum watermark of the active channels that have one; event time as Unix time.",
)
DIMENSION_AVAILABLE = Metric(
    "sidelook_dimension_available",
    "1: lookups are accepted; 0: they are refused until the backend has described its table.",
)
DIMENSION_STALENESS_SECONDS = Metric(
    "sidelook_dimension_staleness_seconds",
    "Upper bound of the lag of served rows behind the table. Absent while no rows are cached.",
)
DIMENSION_STALENESS_LIMIT_SECONDS = Metric(
    "sidelook_dimension_staleness_limit_seconds",
    "Limit of the lag behind the table: ttl plus the longer stale time; of a feed max_staleness, "
    "of a full table the time between reloads. Absent without a limit.",
)
DIMENSION_WATERMARK_SECONDS = Metric(
    "sidelook_dimension_watermark_seconds",
    "All changes with earlier event times are applied; Unix time. Absent before the first one.",
)
DIMENSION_FEED_LIVE = Metric(
    "sidelook_dimension_feed_live",
    "1: the change feed is live and caught up; 0: the cache is bypassed.",
)
DIMENSION_FEED_INCOMPLETE = Metric(
    "sidelook_dimension_feed_incomplete",
    "1: an audit found a change that the feed did not report, and the cache is bypassed; 0: none.",
)
DIMENSION_AUDITED_KEYS = Metric(
    "sidelook_dimension_audited_keys_total",
    "Rows compared with reads of the table, by result.",
    (Label.DIMENSION, Label.RESULT),
)
DIMENSION_FEED_BACKLOG = Metric(
    "sidelook_dimension_feed_backlog", "Changes in the feed's source that are not read yet."
)
DIMENSION_FEED_UNUSED_MESSAGES = Metric(
    "sidelook_dimension_feed_unused_messages_total",
    "Messages without a usable change, by reason; an undecodable one clears the cache.",
    (Label.DIMENSION, Label.REASON),
)
DIMENSION_WHOLE = Metric(
    "sidelook_dimension_whole", "1: the whole table is loaded; 0: a successful load is pending."
)
DIMENSION_LOADING = Metric(
    "sidelook_dimension_loading", "1: the whole table is being loaded; 0: it is not."
)
DIMENSION_LOADS = Metric(
    "sidelook_dimension_loads_total",
    "Loads of the whole table by result; outdated: all rows may have changed during the load.",
    (Label.DIMENSION, Label.RESULT),
)
DIMENSION_LOAD_ROWS = Metric(
    "sidelook_dimension_load_rows", "Rows read by the present load, else by the last one."
)
DIMENSION_LOAD_SECONDS = Metric(
    "sidelook_dimension_load_seconds", "Duration of the last successful load of the whole table."
)
DIMENSION_SPLITS = Metric(
    "sidelook_dimension_splits",
    "Splits of the sources of the dimension's feed and load, by state.",
    (Label.DIMENSION, Label.KIND),
)
DIMENSION_SPLIT_FAILURES = Metric(
    "sidelook_dimension_split_failures_total",
    "Failed split read attempts, of the feed and of the present load.",
    (Label.DIMENSION, Label.KIND),
)
FENCED_KEYS = Metric(
    "sidelook_fenced_keys_total",
    "Keys that were answered and not cached, because the read may have missed a change.",
)
INVALIDATIONS = Metric(
    "sidelook_invalidations_total",
    "Keys invalidated in the cache, by origin.",
    (Label.DIMENSION, Label.ORIGIN),
)
RETRIES = Metric("sidelook_retries_total", "Retries of failed queries, and for keys without a row.")
QUERIES_IN_FLIGHT = Metric("sidelook_queries_in_flight", "Queries in flight at the backend.")
CONNECTION_WAIT_SECONDS = Metric(
    "sidelook_connection_wait_seconds_total",
    "Time in which a query was due and all connections to its database were in use.",
)
QUEUED_KEYS = Metric("sidelook_queued_keys", "Distinct keys that wait for their query to be sent.")
CONCURRENCY_LIMIT = Metric(
    "sidelook_concurrency_limit", "Queries to the backend that may run at the same time."
)
BREAKER_STATE = Metric(
    "sidelook_breaker_state",
    "Circuit breaker of the backend: 0 closed, 1 half-open (probing), 2 open (no queries).",
)
LOOKUP_USES_INDEX = Metric(
    "sidelook_lookup_uses_index",
    "1: the backend finds keys by an index; 0: each query reads all rows.",
)
MEMORY_RESIDENT_BYTES = Metric(
    "sidelook_memory_resident_bytes", "Resident memory of the process.", ()
)
MEMORY_USED_RATIO = Metric(
    "sidelook_memory_used_ratio",
    "Growth since the start / limits.memory, or use / limit of the control group if greater.",
    (),
)
MEMORY_PRESSURE_LEVEL = Metric(
    "sidelook_memory_pressure_level",
    "0 none, 1 caches shrink, 2 also no new credit and channels, 3 also requests are refused.",
    (),
)
EVENT_LOOP_LAG_SECONDS = Metric(
    "sidelook_event_loop_lag_seconds",
    "Longest delay of a timer of the event loop in the last 15 seconds.",
    (),
)
LISTENERS_REACHABLE = Metric(
    "sidelook_listeners_reachable",
    "1: listen.unix is reachable; 0: its file is lost or replaced and cannot be bound again.",
    (),
)
TLS_CERTIFICATE_EXPIRY_SECONDS = Metric(
    "sidelook_tls_certificate_expiry_seconds",
    "Expiry of the certificate of listen.tls; Unix time. Absent without TLS.",
    (),
)
TLS_CERTIFICATE_RENEWALS = Metric(
    "sidelook_tls_certificate_renewals_total",
    "Changed certificate files by result; after a refused one the former certificate stays.",
    (Label.RESULT,),
)
BUILD_INFO = Metric(
    "sidelook_build_info", "Always 1; the label kind is the running version.", (Label.KIND,)
)
