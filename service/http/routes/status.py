"""`GET /v1/status`, its history, `/v1/channels` and `/v1/dimensions`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from aiohttp import web

from lookup_core.keys.typed_keys import UUID_FIELD
from lookup_core.protocol.channel_registry import EndedStream
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.settings import CacheMode
from lookup_core.statistics import DimensionStatistics
from service.engine.dimension import Dimension
from service.engine.recent_errors import RecentErrors
from service.http.health import dimension_health, sidecar_health
from service.http.readiness import Readiness
from service.http.replies import models
from service.http.routes.lookup_request import path_dimension
from service.http.status_history import StatusHistory


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """Figures of the process since it started; `limit_bytes` is `limits.memory`."""

    limit_bytes: int = 0
    resident_bytes: Callable[[], int] = lambda: 0  # 0: not known
    lag_s: Callable[[], float] = lambda: 0.0
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class StatusRoutes:
    """Handlers of the status, and of its parts alone."""

    dimensions: Mapping[str, Dimension]
    channels: Callable[[], Sequence[ChannelStatistics]]
    ended_streams: Callable[[], Sequence[EndedStream]]
    readiness: Readiness
    process: ProcessStatistics
    history: StatusHistory
    version: str

    async def get(self, _request: web.Request) -> web.Response:
        """The process, its dimensions by name, and its channels, as they are now."""
        process, not_ready = self.process, self.readiness.not_ready()
        dimensions = [_described(each, not_ready) for _, each in sorted(self.dimensions.items())]
        is_draining = self.readiness.is_draining
        return models.StatusReply(
            version=self.version,
            uptime_s=process.clock() - process.started_at,
            memory=models.Memory(
                resident_bytes=process.resident_bytes() or None, limit_bytes=process.limit_bytes
            ),
            event_loop_lag_s=process.lag_s(),
            is_draining=is_draining,
            not_ready=not_ready,
            health=sidecar_health(
                dimensions,
                is_draining=is_draining,
                unreachable=self.readiness.unreachable,
                token_faults=self.readiness.token_faults(),
            ),
            dimensions=dimensions,
            channels=self._channels(),
            ended_streams=self._ended_streams(),
        ).response()

    async def get_history(self, _request: web.Request) -> web.Response:
        """Totals of all dimensions in the last ten minutes."""
        return self.history.reply().response()

    async def get_channels(self, _request: web.Request) -> web.Response:
        """All channels, as they are now, and the streams that ended lately."""
        return models.Channels(
            channels=self._channels(), ended_streams=self._ended_streams()
        ).response()

    async def get_dimensions(self, _request: web.Request) -> web.Response:
        """The names of all dimensions, sorted."""
        return models.DimensionNames(dimensions=sorted(self.dimensions)).response()

    async def get_dimension(self, request: web.Request) -> web.Response:
        """One dimension: schema, settings, figures and health."""
        dimension = path_dimension(request, self.dimensions)
        return _described(dimension, self.readiness.not_ready()).response()

    def _channels(self) -> list[models.Channel]:
        return [models.Channel.model_validate(each) for each in self.channels()]

    def _ended_streams(self) -> list[models.EndedStreamReply]:
        return [models.EndedStreamReply.model_validate(each) for each in self.ended_streams()]


def _described(dimension: Dimension, not_ready: Mapping[str, str]) -> models.DimensionReply:
    """One dimension as it is now; `not_ready` is that of `Readiness`."""
    statistics, record = dimension.statistics(), dimension.record
    key, columns, unavailable = None, None, None
    if (fault := dimension.schema.fault) is None:
        schema = dimension.schema.known()
        key, columns = _columns(schema.key), _columns(schema.columns)
    else:
        unavailable = models.Unavailable(code=fault.code.value, detail=fault.detail)
    freshness = models.Freshness.model_validate(dimension.refresh_statistics())
    errors = recent_errors(record.errors)
    mode = dimension.settings.cache.mode
    return models.DimensionReply(
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
            # A full table is in the cache: few queries are sent.
            uses_index=mode is CacheMode.FULL or dimension.backend.uses_index,
            cache_bytes=None if mode is CacheMode.NONE else statistics.cache.max_bytes,
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


def recent_errors(errors: RecentErrors) -> list[models.RecentErrorReply]:
    """The recent errors with ages instead of times, because the caller's clock differs."""
    now = errors.now()
    return [
        models.RecentErrorReply(
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


def _cache(dimension: Dimension, statistics: DimensionStatistics) -> models.CacheReply:
    settings, cache = dimension.settings.cache, statistics.cache
    return models.CacheReply(
        mode=settings.mode,
        rows=cache.rows,
        bytes=cache.bytes,
        max_bytes=cache.max_bytes,
        shared=models.SharedCache.model_validate(statistics.shared),
        evictions=cache.evictions,
        invalidations=statistics.invalidations,
        ttl_s=settings.ttl_s,
        negative_ttl_s=settings.negative_ttl_s,
        stale_while_revalidate_s=settings.stale_while_revalidate_s,
        stale_if_error_s=settings.stale_if_error_s,
    )


def _backend(dimension: Dimension, statistics: DimensionStatistics) -> models.BackendReply:
    return models.BackendReply(
        queries_in_flight=statistics.queries_in_flight,
        concurrency_limit=statistics.concurrency_limit,
        max_in_flight=dimension.settings.batch.max_in_flight,
        connection_wait_s=statistics.connection_wait_s,
        breaker=statistics.breaker_state.label,
        uses_index=dimension.backend.uses_index,
        queued_keys=statistics.queued_keys,
        retries=statistics.retries,
        queries=dimension.record.queries,
        batch_keys=dimension.record.batch_keys,
    )
