"""`GET /v1/dimensions` and `/v1/dimensions/{name}`: schema, settings, figures and health."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from aiohttp import web

from lookup_core.errors import BackendError, unknown_dimension
from lookup_core.keys.key_casts import UUID_FIELD
from lookup_core.statistics import DimensionStatistics
from service.engine.dimension import Dimension
from service.engine.recent_errors import RecentErrors
from service.http.health import dimension_health
from service.http.readiness import Readiness
from service.http.replies import models


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
    """Handlers of the dimensions' descriptions."""

    catalogue: Catalogue
    readiness: Readiness

    async def get_all(self, _request: web.Request) -> web.Response:
        """The names of all dimensions, sorted."""
        return models.DimensionNames(dimensions=sorted(self.catalogue.dimensions)).response()

    async def get(self, request: web.Request) -> web.Response:
        """One dimension: schema, settings, figures and health."""
        dimension = self.catalogue.named(request)
        return described_dimension(dimension, self.readiness.not_ready()).response()


def described_dimension(dimension: Dimension, not_ready: Mapping[str, str]) -> models.Dimension:
    """One dimension as it is now; `not_ready` is that of `Readiness`."""
    statistics, record = dimension.statistics(), dimension.record
    key, columns, unavailable = None, None, None
    try:
        key, columns = _columns(dimension.schema.key), _columns(dimension.schema.columns)
    except BackendError as error:
        unavailable = models.Unavailable(code=error.code.value, detail=error.detail)
    freshness = models.Freshness.model_validate(dimension.refresh_statistics())
    errors = recent_errors(record.errors)
    return models.Dimension(
        name=dimension.name,
        key=key,
        columns=columns,
        unavailable=unavailable,
        health=dimension_health(
            unavailable=unavailable,
            not_ready=not_ready.get(dimension.name),
            breaker=statistics.breaker_state,
            freshness=freshness,
            recent_errors=errors,
        ),
        lookups={outcome.label: count for outcome, count in statistics.outcomes.items()},
        cache=_cache(dimension, statistics),
        freshness=freshness,
        backend=_backend(dimension, statistics),
        waiting_keys=statistics.waiting_keys,
        coalesced_keys=statistics.coalesced_keys,
        timeout_s=dimension.settings.timeout_s,
        recent_errors=errors,
    )


def recent_errors(errors: RecentErrors) -> list[models.RecentError]:
    """The recent errors with ages instead of times, because the caller's clock differs."""
    now = errors.now()
    return [
        models.RecentError(
            code=error.code.value,
            detail=error.detail,
            queries=error.queries,
            keys=error.keys,
            first_ago_s=now - error.first_at,
            last_ago_s=now - error.last_at,
        )
        for error in errors.latest()
    ]


def _columns(schema: pa.Schema) -> list[models.Column]:
    return [
        models.Column(
            name=field.name,
            type="uuid" if field.metadata == UUID_FIELD else str(field.type),
            nullable=field.nullable,
        )
        for field in schema
    ]


def _cache(dimension: Dimension, statistics: DimensionStatistics) -> models.Cache:
    settings, cache = dimension.settings.cache, statistics.cache
    return models.Cache(
        mode=settings.mode,
        rows=cache.rows,
        bytes=cache.bytes,
        max_bytes=cache.max_bytes,
        evictions=cache.evictions,
        invalidations=statistics.invalidations,
        ttl_s=settings.ttl_s,
        negative_ttl_s=settings.negative_ttl_s,
        stale_while_revalidate_s=settings.stale_while_revalidate_s,
        stale_if_error_s=settings.stale_if_error_s,
    )


def _backend(dimension: Dimension, statistics: DimensionStatistics) -> models.Backend:
    return models.Backend(
        queries_in_flight=statistics.queries_in_flight,
        concurrency_limit=statistics.concurrency_limit,
        max_in_flight=dimension.settings.batch.max_in_flight,
        breaker=statistics.breaker_state.label,
        uses_index=dimension.uses_index,
        queued_keys=statistics.queued_keys,
        retries=statistics.retries,
        queries=dimension.record.queries,
        batch_keys=dimension.record.batch_keys,
    )
