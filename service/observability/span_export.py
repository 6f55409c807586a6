"""Span export by OTLP over HTTP, in its own thread and in bounded time."""

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
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

from lookup_core.event_rate_limit import EventRateLimit
from service.observability.tracing import MAX_LINKS, LinkedSampler, OpenTelemetryTracer

LEAST_RETRY_AFTER_S = 1.0  # as long as the library's own first wait
MOST_ANSWER_BYTES = 4096  # nobody reads more than its status and headers
_AGAIN_S = 0.1  # a connection may be made at the very moment of the cut


class FreshHeaders(AuthBase):
    """Puts the headers on each request as they are then, so that a secret may be rotated."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """The same request; raises what reading them raises, which costs this batch."""
        request.headers.update(self._read())
        return request


def collector_session(headers: Callable[[], Mapping[str, str]]) -> requests.Session:
    """For one thread at a time. A request's timeout is the time that all of it may take.

    A redirect raises RequestException; a Retry-After that is too soon, or unreadable, is dropped.
    """
    session = requests.Session()
    session.auth = FreshHeaders(headers)
    session.hooks["response"] += [_refuse_redirect, _drop_hasty_retry]
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BoundedAdapter())
    return session


def _refuse_redirect(response: requests.Response, **_options: object) -> None:
    # The library would not follow it, and would take it for a success.
    status = response.status_code
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise requests.RequestException(
            f"HTTP {status} {response.reason}: redirects are not followed", response=response
        )


def _drop_hasty_retry(response: requests.Response, **_options: object) -> None:
    told = response.headers.pop("Retry-After", None)
    wait_s = 0.0 if told is None else _seconds(told)
    if wait_s >= LEAST_RETRY_AFTER_S:
        response.headers["Retry-After"] = f"{wait_s:.3f}"  # of a date, too: nobody reads it again


def _seconds(retry_after: str) -> float:
    try:
        return Retry().parse_retry_after(retry_after)
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


class _BoundedAdapter(HTTPAdapter):
    """Cuts its connections when the time of a request is over: a timeout is for each read alone."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[ref[Any]] = []  # that urllib3 has made; it keeps and reopens them

    def get_connection_with_tls_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 -- the library's signature
        """The pool; it tells of each connection that it makes."""
        pool = super().get_connection_with_tls_context(*arguments, **named)
        if not isinstance(pool.ConnectionCls, partial):
            # In urllib3 it is only ever called.
            pool.ConnectionCls = partial(self._made, pool.ConnectionCls)  # type: ignore[assignment]
        return pool

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]  # noqa: ANN401 -- as the library passes them on
        """The answer with its first bytes; raises Timeout, or what a lost connection raises."""
        with self._cut_after(options["timeout"]):
            response = super().send(request, **{**options, "stream": True})
            try:
                start = response.raw.read(MOST_ANSWER_BYTES, decode_content=False)
            except HTTPError as error:  # which is no RequestException, unlike what `send` raises
                raise requests.exceptions.ChunkedEncodingError(error, request=request) from error
            response.close()  # and its connection, if there is more
        response.raw = BytesIO(start)
        return response

    def _made(self, kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 -- as above
        connection = kind(**settings)
        kept = [each for each in self._connections if each() is not None]
        self._connections = [*kept, ref(connection)]  # at once: another thread reads it
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
        if is_late.is_set():  # a body that was cut reads like a short one
            raise requests.Timeout(f"no whole answer within {seconds:.1f} s")

    def _cut_until(
        self, is_over: threading.Event, is_late: threading.Event, seconds: float
    ) -> None:
        wait_s = seconds
        while not is_over.wait(wait_s):
            is_late.set()
            wait_s = _AGAIN_S
            for connection in self._connections:
                _cut(getattr(connection(), "sock", None))


def _cut(connected: socket.socket | None) -> None:
    if connected is None:
        return
    try:
        # Not TLS's own, which takes apart what the other thread reads from.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return  # it is no longer connected, or not yet


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
        self._gate = EventRateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Write its text, which names collector and reason."""
        if self._gate.is_due(record.name, time.monotonic()):
            text = record.getMessage()
            structlog.get_logger().warning("tracing.not_sent", code=record.name, text=text)


def _keep_quiet() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [_GatedHandler()]
