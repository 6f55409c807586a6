"""Pydantic models of the JSON replies; the OpenAPI schemas are generated from them.

`LookupAnswer` and `Row` only describe: lookup replies are written without a model, for speed.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, StringConstraints

from lookup_core.answer import Outcome
from lookup_core.dimension.explanation import KeyState
from lookup_core.errors import ErrorCode
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import CacheMode
from lookup_core.sources.splits import SplitState
from lookup_core.statistics import (
    AuditResult,
    EvictionReason,
    InvalidationOrigin,
    LoadResult,
    UnusedMessage,
)
from service.http.body import MediaType
from service.http.replies.health_code import HealthCode, Severity

# Bounds and enums are described, not checked: a wrong figure must not fail the whole reply.
Count = Annotated[int, Field(json_schema_extra={"minimum": 0})]
Seconds = Annotated[float, Field(json_schema_extra={"minimum": 0})]
ServiceState = Literal["healthy", "degraded", "shutting_down"]
OutcomeName = Annotated[str, Field(json_schema_extra={"enum": [each.label for each in Outcome]})]
BreakerName = Annotated[
    str, Field(json_schema_extra={"enum": [each.label for each in BreakerState]})
]
KeyCode = Annotated[str, Field(json_schema_extra={"enum": [each.value for each in ErrorCode]})]
WatermarkMs = Annotated[
    int | None, BeforeValidator(lambda value: None if value == NO_WATERMARK_MS else value)
]


def schema_name(model: type) -> str:
    """The name of a model in the OpenAPI document, without what sets it apart in Python."""
    return model.__name__.removesuffix("Reply")


class Reply(BaseModel):
    """Base of the replies; reads dataclasses by attribute."""

    model_config = ConfigDict(
        extra="forbid", from_attributes=True, frozen=True, model_title_generator=schema_name
    )

    def response(self, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
        """The reply as a JSON response."""
        return web.Response(
            body=self.model_dump_json().encode(),
            status=status,
            content_type=MediaType.JSON.value,
        )


class Row(RootModel[dict[str, Any]]):
    """A member per column.

    Dates, times and timestamps are ISO 8601 texts, with Z if the type has a time zone. Decimals
    and UUIDs are texts, bytes are base64. NaN and infinities are null, because JSON has neither.
    Arrays are lists, and structs are objects.
    """


class KeyFailure(Reply):
    """Why the lookup of one key failed."""

    code: KeyCode = Field(description="Error code.")
    retryable: bool = Field(description="Whether the same lookup may succeed later.")
    detail: str = Field(description="The cause and the remedy.")


class LookupAnswer(Reply):
    """Outcomes, rows and ages in the order of the request, duplicates included."""

    outcomes: list[OutcomeName] = Field(description="Outcome of each key.")
    rows: list[Row | None] = Field(description="Row of each key; null without a row.")
    ages_ms: list[Count] = Field(
        description="Age of each row or negative entry: time since its query was sent, in full mode"
        " since the table was last confirmed; 0 for errors."
    )
    errors: dict[Annotated[str, StringConstraints(pattern="^[0-9]+$")], KeyFailure] = Field(
        default={}, description="Failures by position; absent unless a key failed."
    )


class DimensionNames(Reply):
    """The configured dimensions, sorted."""

    dimensions: list[str] = Field(description="Names.")


class Column(Reply):
    """A key column or value column, with its Arrow type."""

    name: str = Field(description="Name.")
    type: str = Field(description="Arrow type, or `uuid`.")
    nullable: bool = Field(description="Whether the column may be NULL.")


class Unavailable(Reply):
    """Why lookups of the dimension are refused."""

    code: KeyCode = Field(description="Error code.")
    detail: str = Field(description="Reason and remedy.")


class SharedCache(Reply):
    """The cache in shared memory, which workers on the same machine read themselves."""

    why_private: str | None = Field(description="Why workers do not read it; null if they may.")
    folder: str | None = Field(
        description="Folder of its files: absolute, or relative to the folder of the Unix socket;"
        " null if workers may not read it."
    )
    bytes: Count = Field(description="Size of its files.")
    keys: Count = Field(description="Keys that workers looked up in it.")


class CacheReply(Reply):
    """Settings, levels and totals of the cache."""

    mode: CacheMode = Field(description="`cache.mode`.")
    rows: Count = Field(description="Entries, negative entries included.")
    bytes: Count = Field(description="Size of the cache.")
    max_bytes: Count = Field(
        description="Current bound; less than configured under memory pressure."
    )
    shared: SharedCache = Field(description="The cache in shared memory.")
    evictions: Mapping[EvictionReason, Count] = Field(description="Removed entries by reason.")
    invalidations: Mapping[InvalidationOrigin, Count] = Field(
        description="Invalidated keys by origin."
    )
    ttl_s: Seconds = Field(description="`cache.ttl`.")
    negative_ttl_s: Seconds = Field(description="`cache.negative_ttl`.")
    stale_while_revalidate_s: Seconds = Field(description="`cache.stale_while_revalidate`.")
    stale_if_error_s: Seconds = Field(description="`cache.stale_if_error`.")


class SplitReply(Reply):
    """Progress of one split of a change feed or load."""

    id: str = Field(validation_alias="split_id", description="Name of the split.")
    state: SplitState = Field(description="State of the split.")
    position: int | None = Field(description="Position of the reader.")
    total: int | None = Field(description="Estimated end of `position`.")
    is_caught_up: bool = Field(description="Whether all changes are read.")
    failures: Count = Field(validation_alias="failures_total", description="Failed read attempts.")
    last_error: str | None = Field(description="Error of the last failed attempt.")
    watermark_ms: WatermarkMs = Field(description="Event-time watermark, Unix time.")
    is_idle: bool = Field(description="Whether the split has had no change for a while.")
    is_paused: bool = Field(description="Whether `alignment.max_drift` pauses the split.")


class Distrust(Reply):
    """Why the cache of an incomplete feed is bypassed, and for how long."""

    found_ago_s: Seconds = Field(description="Time since an audit found the change.")
    least_s: Seconds = Field(description="How long it lasts at least.")
    agreed: Count = Field(description="Comparisons with the table that agreed since then.")
    needed: Count = Field(description="Comparisons that must agree.")


class FeedReply(Reply):
    """State of the change feed."""

    state: FeedState = Field(description="Whether the feed reports all changes.")
    watermark_ms: WatermarkMs = Field(description="Event-time watermark of all splits, Unix time.")
    last_error: str | None = Field(description="Error of the last failed attempt.")
    unused_messages: dict[UnusedMessage, Count] = Field(
        description="Messages without a usable change, by reason."
    )
    is_audited: bool = Field(description="Whether `refresh.audit` is on.")
    audited_keys: dict[AuditResult, Count] = Field(
        description="Rows compared with reads of the table, by result."
    )
    distrust: Distrust | None = Field(
        description="Since when the feed is incomplete; null if no audit found an omitted change."
    )
    are_values_refused: bool = Field(
        description="Whether rows of events are not used, since one differs from the table."
    )
    doubt: str | None = Field(description="Why the feed may not report the table, and the remedy.")
    splits: list[SplitReply] = Field(description="Progress of each split.")


class Load(Reply):
    """State of the full table."""

    is_whole: bool = Field(description="Whether the whole table is loaded.")
    is_loading: bool = Field(description="Whether a load runs.")
    rows: Count = Field(description="Rows read by the running load, else by the last one.")
    held_rows: Count = Field(description="Rows of the previous load, until another one succeeds.")
    expected_rows: Count | None = Field(description="Estimated rows of the table.")
    last_seconds: Seconds | None = Field(description="Duration of the last successful load.")
    last_error: str | None = Field(description="Error of the last failed attempt.")
    counts: dict[LoadResult, Count] = Field(description="Loads by result.")
    splits: list[SplitReply] = Field(description="Progress of each split.")


class Freshness(Reply):
    """Staleness, change feed and full table."""

    staleness_s: Seconds | None = Field(
        description="Upper bound of the lag of cached rows; null while the cache is empty."
    )
    feed: FeedReply | None = Field(description="Change feed; null without one.")
    load: Load | None = Field(description="Full table; null in other modes.")


class BackendReply(Reply):
    """Queries to the backend: levels now, totals since the start."""

    queries_in_flight: Count = Field(description="Running queries.")
    concurrency_limit: Count = Field(description="Queries that may run at the same time.")
    max_in_flight: Count = Field(
        description="Configured limit of concurrent queries, lowered by the connections to the"
        " database."
    )
    connection_wait_s: Seconds = Field(
        description="Time in which a query was due and all connections were in use."
    )
    breaker: BreakerName = Field(description="State of the circuit breaker.")
    uses_index: bool | None = Field(description="Whether an index finds the keys; null if unknown.")
    queued_keys: Count = Field(description="Distinct keys that wait for their query.")
    retries: Count = Field(description="Retries of queries and for missing keys.")
    queries: Count = Field(description="Queries sent; each attempt counts.")
    batch_keys: Count = Field(description="Distinct keys of all queries.")


class RecentErrorReply(Reply):
    """Equal errors within a minute of each other."""

    code: KeyCode = Field(description="Error code.")
    detail: str = Field(description="Reason and remedy.")
    queries: Count = Field(description="Failed queries.")
    keys: Count = Field(description="Failed keys.")
    first_ago_s: Seconds = Field(description="Age of the first one.")
    last_ago_s: Seconds = Field(description="Age of the last one.")


class HealthReason(Reply):
    """A fact about the health of a dimension; one of severity `info` leaves it healthy."""

    severity: Severity = Field(description="Severity of the fact.")
    code: HealthCode = Field(description="Name of the fact.")
    text: str = Field(description="Text for people.")


class DimensionReply(Reply):
    """Schema, settings, levels and totals of one dimension."""

    name: str = Field(description="Name.")
    key: list[Column] | None = Field(description="Columns of the key; null while unavailable.")
    columns: list[Column] | None = Field(description="Columns of a row; null while unavailable.")
    unavailable: Unavailable | None = Field(
        description="Why lookups are refused; null if they are accepted."
    )
    health: list[HealthReason] = Field(description="Facts about its health; a warning is a fault.")
    lookups: dict[OutcomeName, Count] = Field(description="Keys looked up, by outcome.")
    cache: CacheReply = Field(description="State of the cache.")
    freshness: Freshness = Field(description="State of feed and load.")
    backend: BackendReply = Field(description="State of the backend.")
    waiting_keys: Count = Field(description="Keys without an answer yet.")
    coalesced_keys: Count = Field(description="Keys that joined a query in flight.")
    timeout_s: Seconds = Field(description="`timeout` of the dimension.")
    recent_errors: list[RecentErrorReply] = Field(
        description="Errors of the last lookups, latest first."
    )


class ExplanationReply(Reply):
    """Where the answer for one key would come from now, and why."""

    dimension: str = Field(description="Name of the dimension.")
    state: KeyState = Field(description="State of the key.")
    reason: str = Field(description="Text for people.")
    age_ms: Count | None = Field(description="Age of the cached entry; null without one.")
    expires_in_ms: int | None = Field(
        description="Time until the entry expires; negative for a stale row."
    )
    waiters: Count = Field(description="Lookups that wait for the key.")
    retry_in_ms: Count | None = Field(description="Time until the next retry; null without one.")
    breaker: BreakerName = Field(description="State of the circuit breaker.")


class Invalidated(Reply):
    """How many cache entries were dropped."""

    invalidated: Count = Field(description="Number of dropped entries.")


class ReloadRequested(Reply):
    """The reload was requested; it runs in the background."""

    reload: Literal["requested"] = Field(description="Always the same.")


class Channel(Reply):
    """A streaming channel: its credit and watermark."""

    connection: Count = Field(description="Number of the connection.")
    channel: Count = Field(description="Number of the channel in it.")
    dimension: str = Field(description="Name of the dimension.")
    origin: str = Field(description="Task of Spark, as the client names it.")
    exclusive_records: Count = Field(description="Exclusive credit.")
    floating_records: Count = Field(description="Floating credit, from the shared pool.")
    credit_records: Count = Field(description="Unused credit.")
    backlog_records: Count = Field(description="Records that wait for credit in the client.")
    in_flight_records: Count = Field(description="Keys without an answer yet.")
    shared_keys: Count = Field(description="Keys that the worker looked up in shared memory.")
    watermark_ms: int | None = Field(description="Event-time watermark, Unix time.")
    is_idle: bool = Field(description="Whether the channel has had no input for a while.")


class EndedStreamReply(Reply):
    """The last channels of a dimension without open ones, less than a minute apart."""

    dimension: str = Field(description="Name of the dimension.")
    origin: str = Field(description="Task of the channel that closed last.")
    channels: Count = Field(description="Number of channels.")
    keys: Count = Field(description="Keys of all lookups.")
    watermark_ms: int | None = Field(description="Event-time watermark that the streams reached.")
    ended_ago_s: Seconds = Field(description="Age of the end, at most a minute.")


class Channels(Reply):
    """All open channels, and the streams that ended lately."""

    channels: list[Channel] = Field(description="Open channels.")
    ended_streams: list[EndedStreamReply] = Field(
        description="Dimensions whose last channel closed within a minute."
    )


class Memory(Reply):
    """Memory of the process, and the configured bound of lookups and caches."""

    resident_bytes: Count | None = Field(description="Resident memory; null if unknown.")
    limit_bytes: Count = Field(description="`limits.memory`.")


class SharedReason(HealthReason):
    """A reason with the names of the dimensions that share it."""

    dimensions: list[str] = Field(description="Names of the dimensions.")


class Health(Reply):
    """Health of the sidecar: its state, and the reasons of all dimensions."""

    state: ServiceState = Field(description="State of the sidecar.")
    summary: str = Field(description="Text for people.")
    reasons: list[SharedReason] = Field(description="Facts, warnings first.")


class StatusReply(Reply):
    """The process, its dimensions by name, and its channels."""

    version: str = Field(description="Version of the sidecar.")
    uptime_s: Seconds = Field(description="Time since the start.")
    memory: Memory = Field(description="Memory of the process.")
    event_loop_lag_s: Seconds = Field(
        description="Longest delay of a timer in the last 15 seconds."
    )
    is_draining: bool = Field(description="Whether the sidecar shuts down.")
    not_ready: dict[str, str] = Field(description="Reason for each dimension that is not ready.")
    health: Health = Field(description="Health of the sidecar.")
    dimensions: list[DimensionReply] = Field(description="All dimensions by name.")
    channels: list[Channel] = Field(description="Open channels.")
    ended_streams: list[EndedStreamReply] = Field(
        description="Dimensions whose last channel closed within a minute."
    )


class DimensionHistory(Reply):
    """Totals of one dimension at each sample."""

    name: str = Field(description="Name.")
    lookups: dict[OutcomeName, list[Count]] = Field(description="Keys looked up, by outcome.")
    queries: list[Count] = Field(description="Queries sent.")
    batch_keys: list[Count] = Field(description="Distinct keys of all queries.")


class StatusHistoryReply(Reply):
    """Samples of the last ten minutes, oldest first."""

    ages_s: list[Seconds] = Field(description="Age of each sample.")
    dimensions: list[DimensionHistory] = Field(description="Totals of each dimension.")
