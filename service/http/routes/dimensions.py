"""`GET /v1/dimensions` and `/v1/dimensions/{name}`: schema, cache, freshness, recent errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from aiohttp import web

from lookup_core.errors import BackendError, unknown_dimension
from lookup_core.keys.key_casts import UUID_FIELD
from lookup_core.sources.splits import SplitProgress
from lookup_core.statistics import (
    DimensionStatistics,
    FeedStatistics,
    LoadStatistics,
    RefreshStatistics,
)
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.engine.dimension import Dimension
from service.engine.recent_errors import RecentErrors
from service.http.body import MediaType


def freshness(refresh: RefreshStatistics) -> dict[str, Any]:
    """All of it; null where nothing is followed, or nothing is held whole."""
    return {
        "staleness_s": refresh.staleness_s,
        "feed": None if refresh.feed is None else _feed(refresh.feed),
        "load": None if refresh.load is None else _load(refresh.load),
    }


def _feed(feed: FeedStatistics) -> dict[str, Any]:
    return {
        "state": feed.state.value,
        "watermark_ms": _watermark_ms(feed.watermark_ms),
        "last_error": feed.last_error,
        "unused_messages": {why.value: count for why, count in feed.unused_messages.items()},
        "splits": [_split(each) for each in feed.splits],
    }


def _load(load: LoadStatistics) -> dict[str, Any]:
    return {
        "is_whole": load.is_whole,
        "is_loading": load.is_loading,
        "rows": load.rows,
        "held_rows": load.held_rows,
        "expected_rows": load.expected_rows,
        "last_seconds": load.last_seconds,
        "last_error": load.last_error,
        "counts": {result.value: count for result, count in load.counts.items()},
        "splits": [_split(each) for each in load.splits],
    }


def _split(split: SplitProgress) -> dict[str, Any]:
    return {
        "id": split.split_id,
        "state": split.state.value,
        "position": split.position,
        "total": split.total,
        "is_caught_up": split.is_caught_up,
        "failures": split.failures_total,
        "last_error": split.last_error,
        "watermark_ms": _watermark_ms(split.watermark_ms),
        "is_idle": split.is_idle,
        "is_paused": split.is_paused,
    }


def _watermark_ms(watermark_ms: int) -> int | None:
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms


def recent_errors(errors: RecentErrors) -> list[dict[str, Any]]:
    """All of them, with ages in place of moments, which are nobody else's."""
    now = errors.now()
    return [
        {
            "code": error.code.value,
            "detail": error.detail,
            "queries": error.queries,
            "keys": error.keys,
            "first_ago_s": now - error.first_at,
            "last_ago_s": now - error.last_at,
        }
        for error in errors.latest()
    ]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Dimensions by their configured names."""

    dimensions: Mapping[str, Dimension]

    def named(self, request: web.Request) -> Dimension:
        """The dimension in the path; raises InvalidRequest (`unknown_dimension`) naming all."""
        name = request.match_info["name"]
        dimension = self.dimensions.get(name)
        if dimension is None:
            raise unknown_dimension(name, self.dimensions)
        return dimension


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Handles questions about dimensions, not about their rows."""

    catalogue: Catalogue

    async def get_all(self, _request: web.Request) -> web.Response:
        """The names of all dimensions, sorted."""
        return _json({"dimensions": sorted(self.catalogue.dimensions)})

    async def get(self, request: web.Request) -> web.Response:
        """One dimension: schema, settings and figures."""
        return _json(described_dimension(self.catalogue.named(request)))


def described_dimension(dimension: Dimension) -> dict[str, Any]:
    """One dimension as JSON values: schema, settings and figures."""
    statistics, record = dimension.statistics(), dimension.record
    return {
        "name": dimension.name,
        **_schema(dimension),
        "lookups": {outcome.label: count for outcome, count in statistics.outcomes.items()},
        "cache": _cache(dimension, statistics),
        "freshness": freshness(dimension.refresh_statistics()),
        "backend": {
            "queries_in_flight": statistics.queries_in_flight,
            "concurrency_limit": statistics.concurrency_limit,
            "max_in_flight": dimension.settings.batch.max_in_flight,
            "breaker": statistics.breaker_state.label,
            "uses_index": dimension.uses_index,
            "queued_keys": statistics.queued_keys,
            "retries": statistics.retries,
            "queries": record.queries,
            "batch_keys": record.batch_keys,
        },
        "waiting_keys": statistics.waiting_keys,
        "coalesced_keys": statistics.coalesced_keys,
        "timeout_s": dimension.settings.timeout_s,
        "recent_errors": recent_errors(record.errors),
    }


def _schema(dimension: Dimension) -> dict[str, Any]:
    try:
        schema = dimension.schema
    except BackendError as error:
        unavailable = {"code": error.code.value, "detail": error.detail}
        return {"key": None, "columns": None, "unavailable": unavailable}
    return {
        "key": _fields(schema.key),
        "columns": _fields(schema.columns),
        "unavailable": None,
    }


def _fields(schema: pa.Schema) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "type": "uuid" if field.metadata == UUID_FIELD else str(field.type),
            "nullable": field.nullable,
        }
        for field in schema
    ]


def _cache(dimension: Dimension, statistics: DimensionStatistics) -> dict[str, Any]:
    settings, cache = dimension.settings.cache, statistics.cache
    return {
        "mode": settings.mode.value,
        "rows": cache.rows,
        "bytes": cache.bytes,
        "max_bytes": cache.max_bytes,
        "evictions": {reason.value: count for reason, count in cache.evictions.items()},
        "invalidations": {origin.value: n for origin, n in statistics.invalidations.items()},
        "ttl_s": settings.ttl_s,
        "negative_ttl_s": settings.negative_ttl_s,
        "stale_while_revalidate_s": settings.stale_while_revalidate_s,
        "stale_if_error_s": settings.stale_if_error_s,
    }


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type=MediaType.JSON.value)
