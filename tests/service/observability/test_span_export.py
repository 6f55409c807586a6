"""Span export: bounded in memory, whatever the collector sends."""

import asyncio
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
import requests
from structlog.testing import capture_logs
from urllib3.exceptions import HTTPError

from service.observability.span_export import (
    MOST_ANSWER_BYTES,
    SpanExportSettings,
    collector_session,
    exporting_tracer,
)
from tests.otlp_collector import otlp_collector
from tools.processes.sidecar_process import free_port
from tools.processes.until import until

PATH = "/v1/traces"
PATIENCE_S = 20.0
HUGE_BYTES = 200_000_000
MOST_MORE_MEGABYTES = 50.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"

Answer = Callable[[socket.socket, threading.Event], None]


def big(connection: socket.socket, _is_over: threading.Event) -> None:
    """Send a huge body, as far as it is read."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % HUGE_BYTES)
    for _ in range(HUGE_BYTES // 1_000_000):
        connection.sendall(b"x" * 1_000_000)


def answered(start: bytes) -> Answer:
    """Send a complete answer without a body."""

    def answer(connection: socket.socket, _is_over: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 " + start + b"\r\nContent-Length: 0\r\n\r\n")

    return answer


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """The URL of a collector with this answer."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_serve, args=(listening, answer, is_over))
        serving.start()
        try:
            port = listening.getsockname()[1]
            yield f"http://127.0.0.1:{port}{PATH}"
        finally:
            is_over.set()
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


def _serve(listening: socket.socket, answer: Answer, is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            accepted, _ = listening.accept()
            with accepted as connection:
                connection.recv(65536)
                answer(connection, is_over)
        except OSError:
            continue  # the client has left, or the test is over


def sent(
    url: str, *, timeout_s: float = PATIENCE_S, verify: str | bool = True
) -> requests.Response:
    """The answer to an empty batch."""
    with collector_session(dict) as session:
        return session.post(url, data=b"", timeout=timeout_s, verify=verify)


class TestSession:
    """The HTTP session of the exporter."""

    def test_long_answer_is_not_read(self) -> None:
        """Of a huge body a few KiB are read, and memory does not grow."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        with server(big) as url:
            response = sent(url)

        more_megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert (response.status_code, len(response.content)) == (400, MOST_ANSWER_BYTES)
        assert more_megabytes < MOST_MORE_MEGABYTES

    def test_broken_answer_is_a_failure(self) -> None:
        """A connection that is lost within a body fails the request."""

        def broken(connection: socket.socket, _is_over: threading.Event) -> None:
            connection.sendall(OK + b"\r\nx")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        with server(broken) as url, pytest.raises((requests.RequestException, HTTPError)):
            sent(url)

    def test_whole_answer_keeps_its_connection(self) -> None:
        """A short answer is read to its end, so that the next batch uses the connection."""
        ports = set()

        def twice(connection: socket.socket, _is_over: threading.Event) -> None:
            ports.add(connection.getpeername()[1])
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

        with server(twice) as url, collector_session(dict) as session:
            bodies = [session.post(url, data=b"", timeout=PATIENCE_S).text for _ in range(2)]

        assert (bodies, len(ports)) == (["{}", "[]"], 1)

    def test_headers_are_read_for_each_request(self) -> None:
        """A rotated secret counts from the next request."""
        tokens = iter(["Bearer old", "Bearer new"])

        with (
            otlp_collector() as collector,
            collector_session(lambda: {"authorization": next(tokens)}) as session,
        ):
            for _ in range(2):
                session.post(collector.url + PATH, data=b"", timeout=PATIENCE_S)

        assert collector.tokens == ["Bearer old", "Bearer new"]

    @pytest.mark.parametrize("status", [b"300 Choices", b"304 Same", b"307 Here", b"399 Other"])
    def test_redirect_is_a_failure(self, status: bytes) -> None:
        """A redirect is not followed, and its status is stated."""
        moved = server(answered(status + b"\r\nLocation: http://127.0.0.1:1/"))
        with moved as url, pytest.raises(requests.RequestException) as caught:
            sent(url)

        assert str(caught.value) == f"HTTP {status.decode()}: redirects are not followed"
        assert not isinstance(caught.value, requests.ConnectionError)  # which is tried again


async def traced(
    endpoint: str,
    count: int,
    headers: Callable[[], Mapping[str, str]] = dict,
    *,
    loses: bool = False,
) -> list[tuple[str, str]]:
    """Trace this many LOOKUPs; returns library logger and text of each log of unsent spans.

    With `loses`, the end of the tracer awaits the first of them.
    """
    settings = SpanExportSettings(endpoint, 1.0, "lookups", "1.2.3", headers)
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S), exporting_tracer(settings, {}) as tracer:
            for _ in range(count):
                span = tracer.begin_lookup("customers", keys=1, parent=None)
                assert span is not None
                span.end()
            await asyncio.to_thread(until, lambda: not loses or "not_sent" in str(logs))
    lost = (event for event in logs if event["event"] == "tracing.not_sent")
    return [(event["code"], event["text"]) for event in lost]


class TestExport:
    """The exporter of the service."""

    async def test_last_spans_are_sent_at_the_end(self) -> None:
        """All spans arrive, under the service's name and version."""
        with otlp_collector() as collector:
            texts = await traced(collector.url + PATH, 300, lambda: {"authorization": "Bearer t"})

        assert (texts, len(collector.spans())) == ([], 300)
        sender = collector.resource()
        assert (sender["service.name"], sender["service.version"]) == ("lookups", "1.2.3")
        assert set(collector.tokens) == {"Bearer t"}

    async def test_lost_spans_are_logged(self) -> None:
        """A redirect or a missing headers file loses the spans, and the log has the reason."""

        def unreadable() -> Mapping[str, str]:
            raise FileNotFoundError("headers")

        with server(answered(b"307 Temporary Redirect\r\nLocation: /elsewhere")) as url:
            ((_, moved), *_) = await traced(url, 1)
        with otlp_collector() as collector:
            ((_, missing), *_) = await traced(collector.url + PATH, 1, unreadable)

        assert moved.startswith("Failed to export")
        assert moved.endswith("HTTP 307 Temporary Redirect: redirects are not followed")
        assert (collector.messages, "headers" in missing) == ([], True)

    @pytest.mark.full
    async def test_absent_collector_is_logged_once(self) -> None:
        """The log has one line per logger of the library instead of one for each batch."""
        url = f"http://127.0.0.1:{free_port()}{PATH}"
        lost = await traced(url, 5_000, loses=True)

        assert lost
        assert len({logger for logger, _ in lost}) == len(lost)

    async def test_stalled_collector_does_not_hold_the_end(self) -> None:
        """A collector that never answers loses its spans only."""
        with socket.create_server(("127.0.0.1", 0), backlog=100) as stalled:
            await traced(f"http://127.0.0.1:{stalled.getsockname()[1]}{PATH}", 2_000)
