"""Answers are short and whole in time, by real servers that are neither."""

import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from service.observability.span_export import MOST_ANSWER_BYTES, collector_session
from tests.grace import GRACE_S
from tests.otlp_collector import otlp_collector
from tests.service.tls.certificates import authority

TIMEOUT_S = 1.0
HUGE_BYTES = 200_000_000
MOST_MORE_MEGABYTES = 50.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
BIG = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % HUGE_BYTES

Answer = Callable[[socket.socket, threading.Event], None]


def big(connection: socket.socket, _is_over: threading.Event) -> None:
    """All that it announces, if somebody reads it."""
    connection.sendall(BIG)
    for _ in range(HUGE_BYTES // 1_000_000):
        connection.sendall(b"x" * 1_000_000)


def dripped(start: bytes) -> Answer:
    """After `start` a byte each tenth of a second, far more often than any read's timeout."""

    def drip(connection: socket.socket, is_over: threading.Event) -> None:
        connection.sendall(start)
        while not is_over.wait(TIMEOUT_S / 10):
            connection.sendall(b"x")

    return drip


def answered(start: bytes) -> Answer:
    """A whole answer without a body: status and headers."""

    def answer(connection: socket.socket, _is_over: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 " + start + b"\r\nContent-Length: 0\r\n\r\n")

    return answer


@contextmanager
def server(answer: Answer, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of one that answers so, to one after the other."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_serve, args=(listening, answer, is_over, tls))
        serving.start()
        try:
            port = listening.getsockname()[1]
            yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1/traces"
        finally:
            is_over.set()
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


def _serve(
    listening: socket.socket, answer: Answer, is_over: threading.Event, tls: ssl.SSLContext | None
) -> None:
    while not is_over.is_set():
        try:
            accepted, _ = listening.accept()
            with tls.wrap_socket(accepted, server_side=True) if tls else accepted as connection:
                connection.recv(65536)
                answer(connection, is_over)
        except OSError:
            continue  # the client has left, or the test is over


def asked(url: str, **options: object) -> requests.Response:
    """One batch of no spans."""
    session = collector_session(dict)
    with session:
        return session.post(url, data=b"", timeout=TIMEOUT_S, **options)  # type: ignore[arg-type]  # its options are many


def test_long_answer_is_not_read() -> None:
    """Of 200 MB a few KiB are read, the status is told, and memory stays as it was."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with server(big) as url:
        response = asked(url)

    more_megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert (response.status_code, len(response.content)) == (400, MOST_ANSWER_BYTES)
    assert more_megabytes < MOST_MORE_MEGABYTES


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", OK + b"\r\n"], ids=["status", "header", "body"]
)
def test_dripping_answer_has_one_deadline(start: bytes) -> None:
    """A byte now and then keeps no request open for longer than its timeout."""
    with server(dripped(start)) as url:
        began_s = time.monotonic()
        with pytest.raises(requests.RequestException):
            asked(url)
        took_s = time.monotonic() - began_s

    assert TIMEOUT_S <= took_s < TIMEOUT_S + GRACE_S


def test_deadline_holds_for_tls(tmp_path: Path) -> None:
    """A connection is cut below TLS, too, while another thread reads from it."""
    signer = authority(tmp_path)

    with server(dripped(OK + b"\r\n"), tls=signer.server_context()) as url:
        began_s = time.monotonic()
        with pytest.raises(requests.RequestException):
            asked(url, verify=str(signer.file))
        took_s = time.monotonic() - began_s

    assert TIMEOUT_S <= took_s < TIMEOUT_S + GRACE_S


def test_broken_answer_is_a_failure() -> None:
    """A connection that is lost in the middle of a body fails as one that is lost before it."""

    def broken(connection: socket.socket, _is_over: threading.Event) -> None:
        connection.sendall(OK + b"\r\nx")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with server(broken) as url, pytest.raises(requests.RequestException):
        asked(url)


def test_whole_answer_keeps_its_connection() -> None:
    """What fits is read to its end, so that the next batch finds the connection open."""
    ports = set()

    def twice(connection: socket.socket, _is_over: threading.Event) -> None:
        ports.add(connection.getpeername()[1])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    with server(twice) as url, collector_session(dict) as session:
        bodies = [session.post(url, data=b"", timeout=TIMEOUT_S).text for _ in range(2)]

    assert (bodies, len(ports)) == (["{}", "[]"], 1)


def test_headers_are_read_for_each_request() -> None:
    """Whatever they are then."""
    tokens = iter(["Bearer old", "Bearer new"])

    with (
        otlp_collector() as collector,
        collector_session(lambda: {"authorization": next(tokens)}) as session,
    ):
        for _ in range(2):
            session.post(f"{collector.url}/v1/traces", data=b"", timeout=TIMEOUT_S)

    assert collector.tokens == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("status", [b"300 Choices", b"304 Same", b"307 Elsewhere", b"399 Other"])
def test_redirect_is_a_failure(status: bytes) -> None:
    """It is told with its status, whether it says where to or not, and not followed."""
    lost = server(answered(status + b"\r\nLocation: http://127.0.0.1:1/"))
    with lost as url, pytest.raises(requests.RequestException) as caught:
        asked(url)

    assert str(caught.value) == f"HTTP {status.decode()}: redirects are not followed"
    assert not isinstance(caught.value, requests.ConnectionError)  # which would be tried again


@pytest.mark.parametrize(
    "told",
    ["-5", "0", "0.001", "1e-9", "nan", "", "soon", "9" * 5000, "Wed, 21 Oct 2015 07:28:00 GMT"],
)
def test_hasty_retry_is_not_told(told: str) -> None:
    """A wait that is none, or that cannot be read, leaves the sender its own."""
    with server(answered(b"503 Busy\r\nRetry-After: " + told.encode())) as url:
        response = asked(url)

    assert (response.status_code, response.headers.get("Retry-After")) == (503, None)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("1", "1.000"), ("30", "30.000"), ("Wed, 21 Oct 2099 07:28:00 GMT", "21600.000")],
)
def test_later_retry_is_told(told: str, seconds: str) -> None:
    """A wait of a second or more counts; a date is told in seconds, at most six hours."""
    with server(answered(b"503 Busy\r\nRetry-After: " + told.encode())) as url:
        response = asked(url)

    assert response.headers["Retry-After"] == seconds
