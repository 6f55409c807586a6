"""Span export by OTLP over HTTP: in its own thread, with bounded memory."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from pathlib import Path

import requests
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lookup_core.rate_limits import EventRateLimit
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

MOST_ANSWER_BYTES = 4096  # the library uses status and headers only
END_S = 2.0  # for the last spans, when the service ends
_QUEUED_SPANS = 2048  # beyond, the oldest are dropped
_BATCH_SPANS = 256
_SEND_EVERY_S = 1.0
_SEND_TIMEOUT_S = 5.0  # includes retries


def collector_session(headers: Callable[[], Mapping[str, str]]) -> requests.Session:
    """The HTTP session of one exporter; a redirect raises RequestException."""

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(headers())  # now, for rotated secrets; an error loses this batch
        return request

    session = requests.Session()
    session.auth = authorize
    session.stream = True  # the hook reads the body
    session.hooks["response"].append(_check_answer)
    return session


def _check_answer(answer: requests.Response, **_options: object) -> None:
    """Read the start of the body; the connection is used again if that is all of it."""
    with answer:
        start = answer.raw.read(MOST_ANSWER_BYTES, decode_content=False)
    answer.raw = BytesIO(start)
    # The library treats an unfollowed redirect as a success.
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status_code < HTTPStatus.BAD_REQUEST:
        reason = f"HTTP {answer.status_code} {answer.reason}: redirects are not followed"
        raise requests.RequestException(reason, response=answer)


@dataclass(frozen=True, slots=True)
class SpanExportSettings:
    """Endpoint, service name and sampling of exported spans."""

    endpoint: str  # with path
    sample_ratio: float
    service_name: str
    service_version: str
    headers: Callable[[], Mapping[str, str]]  # read for each batch; raises OSError or ValueError
    ca_file: Path | None = None


@asynccontextmanager
async def exporting_tracer(
    settings: SpanExportSettings, query_attributes: Mapping[str, Mapping[str, str]]
) -> AsyncIterator[OpenTelemetryTracer]:
    """A tracer that exports its spans until the block ends, and for at most 2 s after it."""
    _limit_library_logs()
    provider = TracerProvider(
        sampler=LinkedSampler(settings.sample_ratio),
        resource=Resource.create(
            {"service.name": settings.service_name, "service.version": settings.service_version}
        ),
        shutdown_on_exit=False,  # waits for up to 30 s
        span_limits=SpanLimits(max_links=MAX_LINKS),
    )
    exporter = OTLPSpanExporter(
        settings.endpoint,
        certificate_file=None if settings.ca_file is None else str(settings.ca_file),
        timeout=_SEND_TIMEOUT_S,
        session=collector_session(settings.headers),
    )
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
        yield OpenTelemetryTracer(maker, query_attributes)
    finally:
        await asyncio.to_thread(_end, provider, exporter)


def _end(provider: TracerProvider, exporter: OTLPSpanExporter) -> None:
    # In a daemon thread: the library waits for a collector that hangs.
    ending = threading.Thread(target=provider.shutdown, name="tracing-end", daemon=True)
    ending.start()
    ending.join(END_S)
    if ending.is_alive():
        exporter.shutdown()  # type: ignore[no-untyped-call]  # ends the retries


class _RateLimitedHandler(logging.Handler):
    """Logs the library's warnings at most once in 30 s; it emits one per failed batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._limit = EventRateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record's text, which names collector and reason."""
        if self._limit.is_due(record.name, time.monotonic()):
            text = record.getMessage()
            structlog.get_logger().warning("tracing.not_sent", code=record.name, text=text)


def _limit_library_logs() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [_RateLimitedHandler()]
