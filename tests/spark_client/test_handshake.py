"""The opening handshake with a sidecar."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable, SidelookError
from spark_client.fake_sidecar import FakeSidecar
from spark_client.transport.endpoint import ClientTls, endpoint_of
from spark_client.transport.handshake import handshake
from tests.grace import GRACE_S
from tests.service.tls.certificates import authority
from tests.spark_client.fake_server import FakeServer

TIMEOUT_S = 0.5
LATE = "timed out|in time"  # whichever step the time ends in


@pytest.fixture
def server() -> FakeServer:
    """A sidecar that is not served yet."""
    return FakeServer(FakeSidecar({}))


def refusal(url: str, *, token: str | None = None) -> SidelookError:
    """What the handshake ends with."""
    with pytest.raises(SidelookError) as caught:
        handshake(endpoint_of(url), token=token, timeout_s=5.0)
    return caught.value


def test_handshake_tells_token_and_protocol(server: FakeServer, tmp_path: Path) -> None:
    """The request offers our protocol alone, without compression, and carries the token."""
    with server.at(tmp_path / "s.sock") as url:
        handshake(endpoint_of(url), token="secret", timeout_s=5.0).close()

    (request,) = server.requests
    headers = {name.lower(): value for name, value in request.headers.raw_items()}
    assert request.path == "/v1/stream"
    assert headers["sec-websocket-protocol"] == "sidelook.v1"
    assert headers["authorization"] == "Bearer secret"
    assert "sec-websocket-extensions" not in headers
    assert "origin" not in headers


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN])
def test_wrong_token_is_final(server: FakeServer, tmp_path: Path, status: HTTPStatus) -> None:
    """A refused token is not tried again, and the message says where it comes from."""
    server.status = status

    with server.at(tmp_path / "s.sock") as url:
        error = refusal(url, token="wrong")

    assert isinstance(error, InvalidRequest)
    assert error.code is ErrorCode.UNAUTHORIZED
    assert error.detail == f"{url} refused the token (HTTP {status}); see token_file"


def test_wish_for_a_token_is_told(server: FakeServer, tmp_path: Path) -> None:
    """Who has shown none is told to, and how; nobody's token was refused."""
    server.status = HTTPStatus.UNAUTHORIZED

    with server.at(tmp_path / "s.sock") as url:
        error = refusal(url)

    told = f"{url} wants a token (HTTP 401); name its file: Sidecar({url!r}, token_file=…)"
    assert (type(error), error.code, error.detail) == (
        InvalidRequest,
        ErrorCode.UNAUTHORIZED,
        told,
    )


def test_other_service_is_final(server: FakeServer, tmp_path: Path) -> None:
    """Something that is no sidecar is named as such."""
    server.status = HTTPStatus.NOT_FOUND

    with server.at(tmp_path / "s.sock") as url:
        error = refusal(url)

    assert isinstance(error, InvalidRequest)
    assert "no sidecar: HTTP 404" in error.detail


def test_overloaded_service_may_be_tried_again(server: FakeServer, tmp_path: Path) -> None:
    """A status of the server's side may pass."""
    server.status = HTTPStatus.SERVICE_UNAVAILABLE

    with server.at(tmp_path / "s.sock") as url:
        error = refusal(url)

    assert isinstance(error, SidecarUnreachable)
    assert "HTTP 503" in error.detail


@pytest.mark.parametrize("subprotocol", ["chat", None])
def test_other_subprotocol_is_final(
    server: FakeServer, tmp_path: Path, subprotocol: str | None
) -> None:
    """A WebSocket that does not speak our protocol is of no use."""
    with server.at(tmp_path / "s.sock", subprotocol=subprotocol) as url:
        error = refusal(url)

    assert isinstance(error, InvalidRequest)


def answer_raw(path: Path, answer: bytes | None) -> threading.Thread:
    """Serve one connection with these bytes; None: never answer until the client leaves."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return answer_one(listening, answer)


def answer_one(listening: socket.socket, answer: bytes | None) -> threading.Thread:
    """The same for whoever connects to this one."""

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(4096)
            if answer is None:
                connection.recv(4096)
            else:
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "expected", "text"),
    [
        (b"", SidecarUnreachable, "closed the connection"),
        (b"220 mail ready\r\n", InvalidRequest, "no sidecar"),
    ],
)
def test_odd_answers_are_told_apart(
    tmp_path: Path, answer: bytes, expected: type[SidelookError], text: str
) -> None:
    """A connection that breaks may come back; a peer that speaks something else will not."""
    thread = answer_raw(tmp_path / "s.sock", answer)

    error = refusal(f"unix://{tmp_path}/s.sock")

    thread.join()
    assert isinstance(error, expected)
    assert text in error.detail


def test_peer_that_never_answers_is_left(tmp_path: Path) -> None:
    """The handshake does not wait longer than it was told to."""
    thread = answer_raw(tmp_path / "s.sock", None)

    with pytest.raises(SidecarUnreachable, match=LATE):
        handshake(endpoint_of(f"unix://{tmp_path}/s.sock"), token=None, timeout_s=0.05)

    thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", SidecarUnreachable),
        (b"\x15\x03\x01\x00\x02\x02\x46", SidecarUnreachable),  # an alert of TLS
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", InvalidRequest),
    ],
)
def test_plain_address_may_have_tls(answer: bytes, expected: type[SidelookError]) -> None:
    """Whatever who listens with TLS says to plain HTTP, https:// is what to try."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    thread = answer_one(listening, answer)

    error = refusal(f"http://127.0.0.1:{port}")

    thread.join()
    assert isinstance(error, expected)
    assert error.detail.endswith(
        f"; if it listens with TLS, its address is https://127.0.0.1:{port}"
    )


def drip_one(
    listening: socket.socket, start: bytes, tls: ssl.SSLContext | None
) -> threading.Thread:
    """After `start` a byte each tenth of the timeout, until the client leaves."""

    def serve() -> None:
        accepted, _ = listening.accept()
        with (
            accepted,
            suppress(OSError),  # the client may leave at any time, also before TLS is there
            tls.wrap_socket(accepted, server_side=True) if tls else accepted as connection,
        ):
            connection.recv(65536)
            connection.sendall(start)
            connection.settimeout(TIMEOUT_S / 10)
            while not _has_left(connection):
                connection.sendall(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def _has_left(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    ("scheme", "start"),
    [
        ("http", b"HTTP/1.1 101 Switching Protocols\r\nX-Long: "),
        ("https", b"\x16\x03\x03\x40\x00"),  # a record of TLS that is long in coming
    ],
)
def test_dripping_peer_has_one_deadline(scheme: str, start: bytes) -> None:
    """A byte now and then does not make the handshake longer, neither of HTTP nor of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = drip_one(listening, start, None)
        endpoint = endpoint_of(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}")
        began_s = time.monotonic()
        with pytest.raises(SidecarUnreachable, match=LATE):
            handshake(endpoint, token=None, timeout_s=TIMEOUT_S)
        took_s = time.monotonic() - began_s
        thread.join()

    assert TIMEOUT_S <= took_s < TIMEOUT_S + GRACE_S


def test_deadline_holds_above_tls(tmp_path: Path) -> None:
    """An answer that drips through TLS has the same deadline."""
    signer = authority(tmp_path)
    start = b"HTTP/1.1 101 Switching Protocols\r\nX-Long: "

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = drip_one(listening, start, signer.server_context())
        endpoint = endpoint_of(f"https://127.0.0.1:{listening.getsockname()[1]}")
        began_s = time.monotonic()
        with pytest.raises(SidecarUnreachable, match=LATE):
            handshake(
                endpoint, token=None, timeout_s=TIMEOUT_S, tls=ClientTls(ca_file=str(signer.file))
            )
        took_s = time.monotonic() - began_s
        thread.join()

    assert TIMEOUT_S <= took_s < TIMEOUT_S + GRACE_S
