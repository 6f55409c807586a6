"""Instruments of the running sidecar: metrics, spans and process statistics."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lookup_core.errors import ConfigurationError
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.config.tracing import Tracing, parse_headers
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.file_identity import read_secret
from service.http.readiness import Readiness
from service.http.routes.status import ProcessStatistics
from service.observability.collector import Collector
from service.observability.event_loop import EventLoopLag
from service.observability.prometheus_observer import Exposition, PrometheusObserver
from service.resources.memory_guard import MemoryGuard
from service.stream.handler import StreamHandler
from service.tls.server_certificate import CertificateRotation
from service.version import own_version

_REMEDY = (
    "tracing.endpoint: the package {name!r} is missing; run pip install "
    "'sidelook-service[tracing]' (the image has it), or remove tracing"
)


@dataclass(frozen=True, slots=True)
class Instruments:
    """The measuring parts of the sidecar; no certificate without `listen.tls`."""

    observer: PrometheusObserver
    tracer: Tracer
    lag: EventLoopLag
    guard: MemoryGuard
    certificate: CertificateRotation | None

    def exposition(
        self, dimensions: Mapping[str, Dimension], readiness: Readiness, streams: StreamHandler
    ) -> Exposition:
        """All metrics of the process."""
        collector = Collector(
            dimensions=lambda: {name: each.statistics() for name, each in dimensions.items()},
            refreshes=lambda: {n: each.refresh_statistics() for n, each in dimensions.items()},
            channels=streams.registry.statistics,
            watermarks_ms=streams.registry.watermarks.watermarks_ms,
            undescribed=readiness.undescribed,
            uses_index=lambda: {name: each.uses_index for name, each in dimensions.items()},
            lag_s=lambda: self.lag.lag_s,
            is_reachable=lambda: readiness.unreachable is None,
            memory=self.guard.statistics,
            version=own_version(),
            certificate=self.certificate,
        )
        return Exposition([self.observer, collector])

    def process_statistics(self, limit_bytes: int) -> ProcessStatistics:
        """Figures of the status page; memory is the guard's last reading."""
        return ProcessStatistics(
            limit_bytes,
            resident_bytes=lambda: self.guard.statistics().resident_bytes,
            lag_s=lambda: self.lag.lag_s,
        )


@asynccontextmanager
async def opened_tracer(settings: Settings, *, version: str) -> AsyncIterator[Tracer]:
    """A tracer until the block ends; raises ConfigurationError if its packages are missing."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        yield NullTracer()
        return
    try:
        from service.observability import span_export  # noqa: PLC0415 -- loads nothing if off
    except ModuleNotFoundError as error:
        raise ConfigurationError([_REMEDY.format(name=error.name)]) from error
    exported = span_export.SpanExportSettings(
        endpoint=f"{tracing.endpoint}/v1/traces",
        sample_ratio=tracing.sample_ratio,
        service_name=tracing.service_name,
        service_version=version,
        headers=lambda: _headers(tracing),
        ca_file=tracing.ca_file,
    )
    async with span_export.exporting_tracer(exported, query_attributes(settings)) as tracer:
        yield tracer


def query_attributes(settings: Settings) -> dict[str, Mapping[str, str]]:
    """The attributes of each dimension's queries, by OpenTelemetry's conventions."""
    return {name: _attributes(each.source) for name, each in settings.dimensions.items()}


def _attributes(source: object) -> dict[str, str]:
    if not isinstance(source, PostgresSource):
        return {}  # a file is no database
    return {
        "db.system.name": "postgresql",
        "db.operation.name": "SELECT",
        "db.collection.name": source.relation,
    }


def _headers(tracing: Tracing) -> dict[str, str]:
    file = tracing.headers_file
    return {} if file is None else parse_headers(read_secret(file))
