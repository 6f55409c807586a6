"""`GET /v1/dimensions` and `GET /v1/dimensions/{name}`: what there is, and how it is doing.

Figures come from the engine's own statistics; nothing is counted here.
"""

from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from aiohttp import web

from lookup_core.errors import BackendError
from lookup_core.keys.key_casts import UUID_FIELD
from lookup_core.statistics import DimensionStatistics
from service.engine.dimension import Dimension
from service.http.catalogue import Catalogue
from service.http.freshness import freshness
from service.http.media_type import MediaType
from service.http.recent_errors import recent_errors


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
