"""Span export by OTLP over HTTP: in its own thread, with bounded time and memory."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any
from weakref import ref

import requests
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

from lookup_core.rate_limits import EventRateLimit
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

LEAST_RETRY_AFTER_S = 1.0  # the library's own first pause
MOST_ANSWER_BYTES = 4096  # the library uses status and headers only
END_S = 2.0  # for the last spans, when the service ends
_RECUT_S = 0.1  # a connection may be opened at the moment of the cut
_QUEUED_SPANS = 2048  # beyond, the oldest are dropped
_BATCH_SPANS = 256
_SEND_EVERY_S = 1.0
_SEND_TIMEOUT_S = 5.0  # includes retries


def collector_session(headers: Callable[[], Mapping[str, str]]) -> requests.Session:
    """The HTTP session of one exporter. A request's timeout bounds its total time.

    A redirect raises RequestException; a Retry-After under a second, or unreadable, is removed.
    """

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(headers())  # now, for rotated secrets; an error loses this batch
        return request

    session = requests.Session()
    session.auth = authorize
    session.hooks["response"] += [_refuse_redirect, _drop_hasty_retry]
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BoundedAdapter())
    return session


def _refuse_redirect(response: requests.Response, **_options: object) -> None:
    # The library treats an unfollowed redirect as a success.
    status = response.status_code
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise requests.RequestException(
            f"HTTP {status} {response.reason}: redirects are not followed", response=response
        )


def _drop_hasty_retry(response: requests.Response, **_options: object) -> None:
    retry_after = response.headers.pop("Retry-After", None)
    wait_s = 0.0 if retry_after is None else _seconds(retry_after)
    if wait_s >= LEAST_RETRY_AFTER_S:
        response.headers["Retry-After"] = f"{wait_s:.3f}"  # dates become seconds


def _seconds(retry_after: str) -> float:
    try:
        return Retry().parse_retry_after(retry_after)
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


class _BoundedAdapter(HTTPAdapter):
    """Cuts its connections at a request's deadline: the library's timeout is per read."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[ref[Any]] = []  # urllib3 reuses them

    def get_connection_with_tls_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 -- the library's signature
        """The pool, with a hook that registers its new connections."""
        pool = super().get_connection_with_tls_context(*arguments, **named)
        if not isinstance(pool.ConnectionCls, partial):
            pool.ConnectionCls = partial(self._made, pool.ConnectionCls)  # type: ignore[assignment]  # only called
        return pool

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]  # noqa: ANN401 -- the library's options
        """The answer with the start of its body; raises Timeout or the connection's error."""
        with self._cut_after(options["timeout"]):
            response = super().send(request, **{**options, "stream": True})
            try:
                start = response.raw.read(MOST_ANSWER_BYTES, decode_content=False)
            except HTTPError as error:  # not a RequestException, as callers expect
                raise requests.exceptions.ChunkedEncodingError(error, request=request) from error
            response.close()  # and the connection, if the body is longer
        response.raw = BytesIO(start)
        return response

    def _made(self, kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 -- as above
        connection = kind(**settings)
        kept = [each for each in self._connections if each() is not None]
        self._connections = [*kept, ref(connection)]  # replaced: another thread iterates over it
        return connection

    @contextmanager
    def _cut_after(self, seconds: float) -> Iterator[None]:
        is_over, is_late = threading.Event(), threading.Event()
        cutting = threading.Thread(
            target=self._cut_until,
            args=(is_over, is_late, seconds),
            name="tracing-deadline",
            daemon=True,
        )
        cutting.start()
        try:
            yield
        finally:
            is_over.set()
            cutting.join()
        if is_late.is_set():  # a cut body looks complete
            raise requests.Timeout(f"no complete answer within {seconds:.1f} s")

    def _cut_until(
        self, is_over: threading.Event, is_late: threading.Event, seconds: float
    ) -> None:
        wait_s = seconds
        while not is_over.wait(wait_s):
            is_late.set()
            wait_s = _RECUT_S
            for connection in self._connections:
                _cut(getattr(connection(), "sock", None))


def _cut(connected: socket.socket | None) -> None:
    if connected is None:
        return
    try:
        # Not SSLSocket.shutdown, which resets the TLS state under the reading thread.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return  # not connected


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
