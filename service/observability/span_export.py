"""Sends spans to a collector by OTLP over HTTP, in a thread of its own and in bounded time.

A collector that is away costs its spans, and nobody anything else. Makes no spans: see `tracing`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lookup_core.warning_gate import WarningGate
from service.observability.collector_session import collector_session
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

END_S = 2.0  # for the last spans, when the service ends
_QUEUED_SPANS = 2048  # beyond, the oldest are dropped
_BATCH_SPANS = 256
_SEND_EVERY_S = 1.0
_SEND_TIMEOUT_S = 5.0  # further tries and the answers included


@dataclass(frozen=True, slots=True)
class SpanExportSettings:
    """Where to, as what, and of how many requests."""

    endpoint: str  # with its path
    sample_ratio: float
    service_name: str
    service_version: str
    headers: Callable[[], Mapping[str, str]]  # read for each batch; raises OSError or ValueError
    ca_file: Path | None = None


@asynccontextmanager
async def exporting_tracer(
    settings: SpanExportSettings, stores: Mapping[str, Mapping[str, str]]
) -> AsyncIterator[OpenTelemetryTracer]:
    """A tracer whose spans are sent while the block runs, and for at most 2 s after it."""
    _keep_quiet()
    provider = TracerProvider(
        sampler=LinkedSampler(settings.sample_ratio),
        resource=Resource.create(
            {"service.name": settings.service_name, "service.version": settings.service_version}
        ),
        shutdown_on_exit=False,  # it would wait for 30 s
        span_limits=SpanLimits(max_links=MAX_LINKS),
    )
    exporter = _exporter(settings)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=_QUEUED_SPANS,
            max_export_batch_size=_BATCH_SPANS,
            schedule_delay_millis=_SEND_EVERY_S * 1000,
        )
    )
    maker = provider.get_tracer("sidelook", settings.service_version)
    try:
        yield OpenTelemetryTracer(maker, stores)
    finally:
        await asyncio.to_thread(_end, provider, exporter)


def _exporter(settings: SpanExportSettings) -> OTLPSpanExporter:
    return OTLPSpanExporter(
        settings.endpoint,
        certificate_file=None if settings.ca_file is None else str(settings.ca_file),
        timeout=_SEND_TIMEOUT_S,
        session=collector_session(settings.headers),
    )


def _end(provider: TracerProvider, exporter: OTLPSpanExporter) -> None:
    # In a thread that may be left behind: the library waits for a collector that hangs.
    ending = threading.Thread(target=provider.shutdown, name="tracing-end", daemon=True)
    ending.start()
    ending.join(END_S)
    if ending.is_alive():
        exporter.shutdown()  # type: ignore[no-untyped-call]  # no further try


class _GatedHandler(logging.Handler):
    """Tells of the library's troubles once in 30 s: it has one for each batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._gate = WarningGate()

    def emit(self, record: logging.LogRecord) -> None:
        """Write its text, which names collector and reason."""
        if self._gate.is_due(record.name, time.monotonic()):
            text = record.getMessage()
            structlog.get_logger().warning("tracing.not_sent", code=record.name, text=text)


def _keep_quiet() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [_GatedHandler()]
