"""The JSON schemas of bodies and answers in the OpenAPI document.

Made of the enums and models that the code itself uses, so that they cannot drift apart.
"""

from typing import Any

from lookup_core.answer import Outcome
from lookup_core.dimension.explanation import KeyState
from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import CacheMode
from lookup_core.sources.splits import SplitState
from lookup_core.statistics import EvictionReason, InvalidationOrigin, LoadResult, UnusedMessage
from service.http.problem import HttpCode
from service.http.routes.lookup_request import InvalidateRequest, LookupRequest

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SECONDS: Schema = {"type": "number", "minimum": 0}
_BOOLEAN: Schema = {"type": "boolean"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
_INTEGER_OR_NULL: Schema = {"type": ["integer", "null"]}
_OUTCOMES = [outcome.label for outcome in Outcome]
_BREAKER: Schema = {"type": "string", "enum": [state.label for state in BreakerState]}
_KEY_CODES = [code.value for code in ErrorCode]


def openapi_schemas() -> dict[str, Schema]:
    """All named schemas."""
    return {
        "LookupRequest": LookupRequest.model_json_schema(),
        "LookupAnswer": _lookup_answer(),
        "Row": _row(),
        "DimensionNames": _object(dimensions=_list(_TEXT)),
        "Dimension": _dimension(),
        "Split": _split(),
        "Explanation": _explanation(),
        "InvalidateRequest": InvalidateRequest.model_json_schema(),
        "Invalidated": _object(invalidated=_COUNT),
        "ReloadAsked": _object(reload={"const": "asked"}),
        "Channels": _object(channels=_list(_channel())),
        "Status": _status(),
        "Problem": _problem(),
    }


def reference(name: str) -> Schema:
    """A reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def _lookup_answer() -> Schema:
    answer = _object(
        outcomes=_list({"type": "string", "enum": _OUTCOMES}),
        rows=_list({"oneOf": [reference("Row"), {"type": "null"}]}),
        ages_ms=_list(_COUNT),
    )
    error = _object(code={"type": "string", "enum": _KEY_CODES}, retryable=_BOOLEAN)
    answer["properties"]["errors"] = {
        "type": "object",
        "description": "By position; only if a key failed.",
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": error,
    }
    answer["description"] = "In the order of the request, duplicates included."
    return answer


def _row() -> Schema:
    return {
        "type": "object",
        "description": (
            "A member per column. Dates, times and timestamps are ISO 8601 texts, with Z where the "
            "type knows its zone; decimals and uuids are texts, bytes are base64. JSON has no NaN "
            "and no infinities: they are null."
        ),
    }


def _dimension() -> Schema:
    counts = {"type": "object", "additionalProperties": _COUNT}
    fields = {"oneOf": [_list(_field()), {"type": "null"}]}
    return _object(
        name=_TEXT,
        key=fields,
        columns=fields,
        unavailable={"oneOf": [_object(code=_TEXT, detail=_TEXT), {"type": "null"}]},
        lookups={**counts, "propertyNames": {"enum": _OUTCOMES}},
        cache=_cache(counts),
        freshness=_freshness(counts),
        backend=_object(
            queries_in_flight=_COUNT,
            concurrency_limit=_COUNT,
            max_in_flight=_COUNT,
            breaker=_BREAKER,
            uses_index={"type": ["boolean", "null"]},
            queued_keys=_COUNT,
            retries=_COUNT,
            queries={**_COUNT, "description": "Each try counts."},
            batch_keys={**_COUNT, "description": "Distinct keys of all queries."},
        ),
        waiting_keys=_COUNT,
        coalesced_keys=_COUNT,
        timeout_s=_SECONDS,
        recent_errors=_list(_recent_error()),
    )


def _recent_error() -> Schema:
    error = _object(
        code={"type": "string", "enum": _KEY_CODES},
        detail=_TEXT,
        queries=_COUNT,
        keys=_COUNT,
        first_ago_s=_SECONDS,
        last_ago_s=_SECONDS,
    )
    error["description"] = "What failed alike within a minute of each other, latest first."
    return error


def _field() -> Schema:
    return _object(name=_TEXT, type=_TEXT, nullable=_BOOLEAN)


def _cache(counts: Schema) -> Schema:
    return _object(
        mode={"type": "string", "enum": [mode.value for mode in CacheMode]},
        rows=_COUNT,
        bytes=_COUNT,
        max_bytes=_COUNT,
        evictions={**counts, "propertyNames": {"enum": [each.value for each in EvictionReason]}},
        invalidations={**counts, "propertyNames": {"enum": [o.value for o in InvalidationOrigin]}},
        ttl_s=_SECONDS,
        negative_ttl_s=_SECONDS,
        stale_while_revalidate_s=_SECONDS,
        stale_if_error_s=_SECONDS,
    )


def _freshness(counts: Schema) -> Schema:
    feed = _object(
        state={"type": "string", "enum": [state.value for state in FeedState]},
        watermark_ms=_INTEGER_OR_NULL,
        last_error=_TEXT_OR_NULL,
        unused_messages={**counts, "propertyNames": {"enum": [why.value for why in UnusedMessage]}},
        splits=_list(reference("Split")),
    )
    load = _object(
        is_whole=_BOOLEAN,
        is_loading=_BOOLEAN,
        rows={**_COUNT, "description": "Read by the load under way, else by the last one."},
        held_rows={**_COUNT, "description": "Of the former load, until another has ended well."},
        expected_rows=_COUNT_OR_NULL,
        last_seconds={"type": ["number", "null"], "minimum": 0},
        last_error=_TEXT_OR_NULL,
        counts={**counts, "propertyNames": {"enum": [result.value for result in LoadResult]}},
        splits=_list(reference("Split")),
    )
    return _object(
        staleness_s={
            "type": ["number", "null"],
            "minimum": 0,
            "description": "How far what is held may lag its table; null while nothing is held.",
        },
        feed={"oneOf": [feed, {"type": "null"}]},
        load={"oneOf": [load, {"type": "null"}]},
    )


def _split() -> Schema:
    return _object(
        id=_TEXT,
        state={"type": "string", "enum": [state.value for state in SplitState]},
        position=_INTEGER_OR_NULL,
        total={**_INTEGER_OR_NULL, "description": "About where `position` will end."},
        is_caught_up=_BOOLEAN,
        failures=_COUNT,
        last_error=_TEXT_OR_NULL,
        watermark_ms=_INTEGER_OR_NULL,
        is_idle=_BOOLEAN,
        is_paused=_BOOLEAN,
    )


def _explanation() -> Schema:
    return _object(
        dimension=_TEXT,
        state={"type": "string", "enum": [state.value for state in KeyState]},
        reason=_TEXT,
        age_ms=_COUNT_OR_NULL,
        expires_in_ms={"type": ["integer", "null"], "description": "Negative for a stale row."},
        waiters=_COUNT,
        retry_in_ms=_COUNT_OR_NULL,
        breaker=_BREAKER,
    )


def _channel() -> Schema:
    return _object(
        connection=_COUNT,
        channel=_COUNT,
        dimension=_TEXT,
        origin=_TEXT,
        exclusive_records=_COUNT,
        floating_records=_COUNT,
        credit_records=_COUNT,
        backlog_records=_COUNT,
        in_flight_records=_COUNT,
        watermark_ms=_INTEGER_OR_NULL,
        is_idle=_BOOLEAN,
    )


def _status() -> Schema:
    return _object(
        version=_TEXT,
        uptime_s=_SECONDS,
        memory=_object(resident_bytes=_COUNT_OR_NULL, limit_bytes=_COUNT),
        event_loop_lag_s=_SECONDS,
        is_draining=_BOOLEAN,
        not_ready={
            "type": "object",
            "description": "What each dimension waits for that takes no lookups yet.",
            "additionalProperties": _TEXT,
        },
        dimensions=_list(reference("Dimension")),
        channels=_list(_channel()),
    )


def _problem() -> Schema:
    codes = [*_KEY_CODES, *(code.value for code in HttpCode)]
    return _object(
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        code={"type": "string", "enum": sorted(codes)},
        retryable=_BOOLEAN,
    )


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}
