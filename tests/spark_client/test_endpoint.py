"""Endpoints, TLS files and the opening handshake: deadlines, and reasons with a remedy."""

import os
import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable, SidelookError
from spark_client.transport.endpoint import (
    SYSTEMS_TLS,
    ClientTls,
    endpoint_of,
    limit_wait,
)
from spark_client.transport.handshake import handshake
from tests.service.tls.certificates import authority
from tests.spark_client.memory_transport import ReachableSidecar, RecordingServer


@pytest.mark.parametrize(
    ("url", "web_socket_url"),
    [
        ("unix:///run/a.sock", "ws://localhost/v1/stream"),
        ("http://a", "ws://a:80/v1/stream"),
        ("https://[::1]/", "wss://[::1]:443/v1/stream"),
    ],
)
def test_streams_have_web_socket_urls(url: str, web_socket_url: str) -> None:
    """A socket stands for localhost; a relative path of a socket is refused."""
    assert endpoint_of(url).web_socket_url == web_socket_url
    with pytest.raises(ValueError, match="unix:///path"):
        endpoint_of("unix://relative/path")


def test_unusable_sockets_are_distinguished(tmp_path: Path) -> None:
    """A missing socket file is not the same as one that a dead sidecar left behind."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "stale.sock"))

    with pytest.raises(SidecarUnreachable, match=r"none\.sock: no such socket.*mounted"):
        endpoint_of(f"unix://{tmp_path}/none.sock").connect(1.0)
    with pytest.raises(SidecarUnreachable, match="nothing listens"):
        endpoint_of(f"unix://{tmp_path}/stale.sock").connect(1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            PermissionError(13, "Permission denied"),
            f"uid {os.getuid()}, gid {os.getgid()} may not open it (Permission denied)",
        ),
        (TimeoutError(), "it did not answer in time"),
        (OSError("no route"), "no route"),
    ],
)
def test_reasons_name_the_remedy(error: OSError, reason: str) -> None:
    """A forbidden socket has the user and group; a timeout is no fault of TLS."""
    assert endpoint_of("unix:///a")._reason(error) == reason
    assert SYSTEMS_TLS.reason(error, "host") is None


def test_waits_share_a_deadline() -> None:
    """Each wait gets the time that the earlier ones left; after the deadline there is none."""
    with socket.socket() as waiting:
        limit_wait(waiting, time.monotonic() + 60.0)
        left_s = waiting.gettimeout()
        with pytest.raises(TimeoutError):
            limit_wait(waiting, time.monotonic())

    assert left_s is not None
    assert 0.0 < left_s <= 60.0


def test_hosts_are_always_checked(tmp_path: Path) -> None:
    """With or without files, the server needs a certificate for its host; `ca_file` trusts one."""
    signer = authority(tmp_path)
    files = signer.issue()
    tls = ClientTls(str(signer.file), str(files.cert_file), str(files.key_file))

    for context in (SYSTEMS_TLS.context(), tls.context()):
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(tls.context().get_ca_certs()) == 1


def test_unusable_files_are_named(tmp_path: Path) -> None:
    """An unusable file is an error without retries; of a pair, the error has both files."""
    signer = authority(tmp_path)
    mine, other = signer.issue(), signer.issue(name="other")
    nonsense, pair = tmp_path / "nonsense", f"{mine.cert_file}, {other.key_file}"
    nonsense.write_text("nonsense")
    faults = {}
    for tls in (
        ClientTls(str(tmp_path / "none")),
        ClientTls(str(nonsense)),
        ClientTls(None, str(mine.cert_file), str(other.key_file)),
    ):
        with pytest.raises(InvalidRequest) as caught:
            tls.context()
        faults[tls] = caught.value.detail

    assert list(faults.values()) == [
        f"ca_file {tmp_path}/none cannot be used: no such file or directory",
        f"ca_file {nonsense} cannot be used: no certificate or crl found",
        f"cert_file, key_file {pair} cannot be used: key values mismatch",
    ]


@pytest.fixture
def server() -> RecordingServer:
    """A sidecar that is not served yet."""
    return RecordingServer(ReachableSidecar({}))


def refusal(
    url: str, *, token: str | None = None, timeout_s: float = 5.0, tls: ClientTls = SYSTEMS_TLS
) -> SidelookError:
    """The error of a handshake."""
    with pytest.raises(SidelookError) as caught:
        handshake(endpoint_of(url), token=token, timeout_s=timeout_s, tls=tls)
    return caught.value


def test_handshake_sends_token_and_protocol(server: RecordingServer, tmp_path: Path) -> None:
    """The request has the subprotocol and the token, no compression and no origin."""
    with server.at(tmp_path / "s.sock") as url:
        handshake(endpoint_of(url), token="secret", timeout_s=5.0).close()

    (request,) = server.requests
    headers = {name.lower(): value for name, value in request.headers.raw_items()}
    assert request.path == "/v1/stream"
    assert headers["sec-websocket-protocol"] == "sidelook.v1"
    assert headers["authorization"] == "Bearer secret"
    assert not {"sec-websocket-extensions", "origin"} & headers.keys()


WANTED = "{url} wants a token (HTTP 401); name its file: Sidecar({url!r}, token_file=…)"
REFUSED = "{url} refused the token (HTTP {status}); see token_file"
NO_SIDECAR = (
    "{url} is no sidecar: HTTP {status};"
    " the health listener serves no lookups: use the address of listen.http"
)


@pytest.mark.parametrize(
    ("status", "token", "error", "code", "detail"),
    [
        (401, "wrong", InvalidRequest, ErrorCode.UNAUTHORIZED, REFUSED),
        (403, "wrong", InvalidRequest, ErrorCode.UNAUTHORIZED, REFUSED),
        (401, None, InvalidRequest, ErrorCode.UNAUTHORIZED, WANTED),
        (404, None, InvalidRequest, ErrorCode.BAD_REQUEST, NO_SIDECAR),
        (500, None, SidecarUnreachable, ErrorCode.SIDECAR_UNREACHABLE, "it answered HTTP {status}"),
        (503, None, SidecarUnreachable, ErrorCode.SIDECAR_UNREACHABLE, "it answered HTTP {status}"),
    ],
)
def test_status_decides_about_retries(
    server: RecordingServer,
    tmp_path: Path,
    *,
    status: int,
    token: str | None,
    error: type[SidelookError],
    code: ErrorCode,
    detail: str,
) -> None:
    """A refused or missing token and another service are final; a status from 500 is not."""
    server.status = HTTPStatus(status)

    with server.at(tmp_path / "s.sock") as url:
        found = refusal(url, token=token)

    assert (type(found), found.code) == (error, code)
    assert found.detail.endswith(detail.format(url=url, status=status))


@pytest.mark.parametrize("subprotocol", ["chat", None])
def test_other_subprotocol_is_final(tmp_path: Path, subprotocol: str | None) -> None:
    """A WebSocket without the subprotocol is refused."""
    server = RecordingServer(ReachableSidecar({}), subprotocol=subprotocol)
    with server.at(tmp_path / "s.sock") as url:
        assert isinstance(refusal(url), InvalidRequest)


HTTP_REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
SUGGESTS_TLS = "; if it listens with TLS, its address is https://{host}"


@pytest.mark.parametrize(
    ("scheme", "answer", "error", "text"),
    [
        ("http", b"", SidecarUnreachable, "closed the connection"),
        ("http", b"", SidecarUnreachable, SUGGESTS_TLS),
        ("http", TLS_ALERT, SidecarUnreachable, SUGGESTS_TLS),
        ("http", HTTP_REFUSAL, InvalidRequest, SUGGESTS_TLS),
        ("http", b"220 mail ready\r\n", InvalidRequest, "no sidecar"),
        ("https", HTTP_REFUSAL, SidecarUnreachable, "does not speak TLS"),
    ],
)
def test_odd_answers_are_distinguished(
    scheme: str, answer: bytes, error: type[SidelookError], text: str
) -> None:
    """A peer of another protocol is final; a lost connection or other TLS is retriable."""

    def serve() -> None:
        with listening.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=serve)
        thread.start()
        found = refusal(f"{scheme}://{host}")
        thread.join()

    assert isinstance(found, error)
    assert text.format(host=host) in found.detail


HTTP_START = b"HTTP/1.1 101 Switching Protocols\r\nX-Long: "
TLS_START = b"\x16\x03\x03\x40\x00"  # a long record


@pytest.mark.parametrize(
    ("scheme", "start", "has_tls"),
    [
        ("http", None, False),
        ("http", HTTP_START, False),
        ("https", TLS_START, False),
        ("https", HTTP_START, True),
    ],
    ids=["never", "http", "tls", "http in tls"],
)
def test_slow_answers_share_a_deadline(
    tmp_path: Path,
    scheme: str,
    start: bytes | None,
    has_tls: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """A peer that never answers, or sends a byte now and then, is left at the deadline."""
    signer = authority(tmp_path)
    context = signer.server_context() if has_tls else None

    def drip(connection: socket.socket) -> None:
        connection.settimeout(0.05)
        while True:
            if start is not None:
                connection.sendall(b"x")
            with suppress(TimeoutError):
                if not connection.recv(4096):
                    return  # the client has left

    def serve() -> None:
        accepted = listening.accept()[0]
        with suppress(OSError), accepted:  # the client may leave at any time
            connection = context.wrap_socket(accepted, server_side=True) if context else accepted
            with connection:
                connection.recv(65536)
                connection.sendall(start or b"")
                drip(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        found = refusal(url, timeout_s=0.5, tls=ClientTls(ca_file=str(signer.file)))
        thread.join()

    assert isinstance(found, SidecarUnreachable)
    assert "timed out" in found.detail or "in time" in found.detail
