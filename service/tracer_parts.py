"""The tracer of the service, as its configuration wants it: none, or one that sends its spans.

A part of the application's wiring. OpenTelemetry is imported where it is asked for, and only there.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from lookup_core.errors import ConfigurationError
from service.config.secret_file import read_secret
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.config.tracing import Tracing, parse_headers
from service.engine.tracer import NullTracer, Tracer

_PATH = "/v1/traces"
_REMEDY = (
    "tracing.endpoint: the package {name!r} is missing; pip install 'sidelook[tracing]' (the image"
    " has it), or leave tracing out"
)


@asynccontextmanager
async def opened_tracer(settings: Settings, *, version: str) -> AsyncIterator[Tracer]:
    """A tracer while the block runs; raises ConfigurationError without its packages."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        yield NullTracer()
        return
    try:
        from service.observability import span_export  # noqa: PLC0415 -- free where it is off
    except ModuleNotFoundError as error:
        raise ConfigurationError([_REMEDY.format(name=error.name)]) from error
    wanted = span_export.SpanExportSettings(
        endpoint=tracing.endpoint + _PATH,
        sample_ratio=tracing.sample_ratio,
        service_name=tracing.service_name,
        service_version=version,
        headers=lambda: _headers(tracing),
        ca_file=tracing.ca_file,
    )
    async with span_export.exporting_tracer(wanted, stores(settings)) as tracer:
        yield tracer


def stores(settings: Settings) -> dict[str, Mapping[str, str]]:
    """What is said of each dimension's queries, by OpenTelemetry's conventions."""
    return {name: _store(each.source) for name, each in settings.dimensions.items()}


def _store(source: object) -> dict[str, str]:
    if not isinstance(source, PostgresSource):
        return {}  # a file is no database, and has no operations
    return {
        "db.system.name": "postgresql",
        "db.operation.name": "SELECT",
        "db.collection.name": source.table,
    }


def _headers(tracing: Tracing) -> dict[str, str]:
    file = tracing.headers_file
    return {} if file is None else parse_headers(read_secret(file))
