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
from lookup_core.freshness.feed_health import FeedState
from lookup_core.operator.watermark_valve import NO_WATERMARK_MS
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import CacheMode
from lookup_core.sources.splits import SplitState
from lookup_core.statistics import EvictionReason, InvalidationOrigin, LoadResult, UnusedMessage
from service.http.body import MediaType

# Bounds and enums are described, not checked: a wrong figure must not fail the whole reply.
Count = Annotated[int, Field(json_schema_extra={"minimum": 0})]
Seconds = Annotated[float, Field(json_schema_extra={"minimum": 0})]
Severity = Literal["info", "warning"]
ServiceState = Literal["healthy", "degraded", "shutting_down"]
OutcomeName = Annotated[str, Field(json_schema_extra={"enum": [each.label for each in Outcome]})]
BreakerName = Annotated[
    str, Field(json_schema_extra={"enum": [each.label for each in BreakerState]})
]
KeyCode = Annotated[str, Field(json_schema_extra={"enum": [each.value for each in ErrorCode]})]
WatermarkMs = Annotated[
    int | None, BeforeValidator(lambda value: None if value == NO_WATERMARK_MS else value)
]


class Reply(BaseModel):
    """Base of the replies; reads dataclasses by attribute."""

    model_config = ConfigDict(extra="forbid", from_attributes=True, frozen=True)

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

    code: KeyCode
    retryable: bool


class LookupAnswer(Reply):
    """Outcomes, rows and ages in the order of the request, duplicates included."""

    outcomes: list[OutcomeName]
    rows: list[Row | None]
    ages_ms: list[Count]
    errors: dict[Annotated[str, StringConstraints(pattern="^[0-9]+$")], KeyFailure] = Field(
        default={}, description="By position; absent unless a key failed."
    )


class DimensionNames(Reply):
    """The configured dimensions, sorted."""

    dimensions: list[str]


class Column(Reply):
    """A key column or value column, with its Arrow type."""

    name: str
    type: str
    nullable: bool


class Unavailable(Reply):
    """Why the backend has not described the dimension yet."""

    code: KeyCode
    detail: str


class SharedCache(Reply):
    """The cache in shared memory, which workers on the same machine read themselves."""

    why_private: str | None = Field(description="Why they do not; null if they may.")
    folder: str | None = Field(
        description="Of its files: absolute, or relative to the folder of the Unix socket; null if "
        "they may not read it."
    )
    bytes: Count = Field(description="Of its files.")
    keys: Count = Field(description="That workers looked up in it.")


class Cache(Reply):
    """Settings, levels and totals of the cache."""

    mode: CacheMode
    rows: Count
    bytes: Count
    max_bytes: Count
    shared: SharedCache
    evictions: Mapping[EvictionReason, Count]
    invalidations: Mapping[InvalidationOrigin, Count]
    ttl_s: Seconds
    negative_ttl_s: Seconds
    stale_while_revalidate_s: Seconds
    stale_if_error_s: Seconds


class Split(Reply):
    """Progress of one split of a change feed or load."""

    id: str = Field(validation_alias="split_id")
    state: SplitState
    position: int | None
    total: int | None = Field(description="Estimated end of `position`.")
    is_caught_up: bool
    failures: Count = Field(validation_alias="failures_total")
    last_error: str | None
    watermark_ms: WatermarkMs
    is_idle: bool
    is_paused: bool


class Feed(Reply):
    """State of the change feed."""

    state: FeedState
    watermark_ms: WatermarkMs
    last_error: str | None
    unused_messages: dict[UnusedMessage, Count]
    splits: list[Split]


class Load(Reply):
    """State of the full table."""

    is_whole: bool
    is_loading: bool
    rows: Count = Field(description="Rows read by the running load, else by the last one.")
    held_rows: Count = Field(description="Rows of the previous load, until another one succeeds.")
    expected_rows: Count | None
    last_seconds: Seconds | None
    last_error: str | None
    counts: dict[LoadResult, Count]
    splits: list[Split]


class Freshness(Reply):
    """Staleness, change feed and full table."""

    staleness_s: Seconds | None = Field(
        description="How far cached rows may lag behind the table; null while the cache is empty."
    )
    feed: Feed | None
    load: Load | None


class Backend(Reply):
    """Queries to the backend: levels now, totals since the start."""

    queries_in_flight: Count
    concurrency_limit: Count
    max_in_flight: Count = Field(
        description="As configured, or fewer: what the connections to the database allow."
    )
    connection_wait_s: Seconds = Field(
        description="Time in which a query was due and all connections were in use."
    )
    breaker: BreakerName
    uses_index: bool | None
    queued_keys: Count
    retries: Count
    queries: Count = Field(description="Every attempt counts.")
    batch_keys: Count = Field(description="Distinct keys of all queries.")


class RecentError(Reply):
    """Equal errors within a minute of each other."""

    code: KeyCode
    detail: str
    queries: Count
    keys: Count
    first_ago_s: Seconds
    last_ago_s: Seconds


class HealthReason(Reply):
    """A fact about the health of a dimension; one of severity `info` leaves it healthy."""

    severity: Severity
    code: str
    text: str


class Dimension(Reply):
    """Schema, settings, levels and totals of one dimension."""

    name: str
    key: list[Column] | None
    columns: list[Column] | None
    unavailable: Unavailable | None
    health: list[HealthReason] = Field(description="Without a warning the dimension is healthy.")
    lookups: dict[OutcomeName, Count]
    cache: Cache
    freshness: Freshness
    backend: Backend
    waiting_keys: Count
    coalesced_keys: Count
    timeout_s: Seconds
    recent_errors: list[RecentError] = Field(description="Latest first.")


class Explanation(Reply):
    """Where the answer for one key would come from now, and why."""

    dimension: str
    state: KeyState
    reason: str
    age_ms: Count | None
    expires_in_ms: int | None = Field(description="Negative for a stale row.")
    waiters: Count
    retry_in_ms: Count | None
    breaker: BreakerName


class Invalidated(Reply):
    """How many cache entries were dropped."""

    invalidated: Count


class ReloadAsked(Reply):
    """The reload was requested; it runs in the background."""

    reload: Literal["asked"]


class Channel(Reply):
    """A streaming channel: its credit and watermark."""

    connection: Count
    channel: Count
    dimension: str
    origin: str
    exclusive_records: Count
    floating_records: Count
    credit_records: Count
    backlog_records: Count
    in_flight_records: Count
    shared_keys: Count = Field(description="That the worker looked up in shared memory.")
    watermark_ms: int | None
    is_idle: bool


class EndedStream(Reply):
    """The channels of a dimension that has no open one, with less than a minute between them."""

    dimension: str
    origin: str = Field(description="Of the channel that closed last.")
    channels: Count
    keys: Count = Field(description="Of all lookups; a lookup has each of its keys once.")
    watermark_ms: int | None = Field(description="That the streams of the dimension reached.")
    ended_ago_s: Seconds = Field(description="At most a minute.")


class Channels(Reply):
    """All open channels, and the streams that ended lately."""

    channels: list[Channel]
    ended_streams: list[EndedStream]


class Memory(Reply):
    """Memory of the process, and the configured bound of lookups and caches."""

    resident_bytes: Count | None
    limit_bytes: Count


class SharedReason(HealthReason):
    """A reason with the names of the dimensions that share it."""

    dimensions: list[str]


class Health(Reply):
    """Health of the sidecar: its state, and the reasons of all dimensions."""

    state: ServiceState
    summary: str
    reasons: list[SharedReason]


class Status(Reply):
    """The process, its dimensions by name, and its channels."""

    version: str
    uptime_s: Seconds
    memory: Memory
    event_loop_lag_s: Seconds
    is_draining: bool
    not_ready: dict[str, str] = Field(
        description="What each dimension that is not ready waits for."
    )
    health: Health
    dimensions: list[Dimension]
    channels: list[Channel]
    ended_streams: list[EndedStream]


class DimensionHistory(Reply):
    """Totals of one dimension at each sample."""

    name: str
    lookups: dict[OutcomeName, list[Count]]
    queries: list[Count]
    batch_keys: list[Count]


class StatusHistory(Reply):
    """Samples of the last ten minutes, oldest first."""

    ages_s: list[Seconds] = Field(description="The age of each sample.")
    dimensions: list[DimensionHistory]
