"""Tracer of the running sidecar, as configured: it exports spans, or traces nothing."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from lookup_core.errors import ConfigurationError
from service.config.section import copied
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.config.tracing import Tracing, parse_headers
from service.engine.tracer import NullTracer, Tracer
from service.file_identity import read_secret

_REMEDY = (
    "tracing.endpoint: the package {name!r} is missing; run pip install "
    "'sidelook-service[tracing]' (the image has it), or remove tracing"
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
    exported = copied(
        span_export.SpanExportSettings,
        tracing,
        endpoint=f"{tracing.endpoint}/v1/traces",
        service_version=version,
        headers=lambda: _headers(tracing),
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
