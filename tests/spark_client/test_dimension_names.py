"""Names of a sidecar's dimensions, read by the driver: retries, refusals and deadlines."""

import socket
import threading
from http import HTTPStatus
from itertools import count
from pathlib import Path

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable, SidelookError
from spark_client.transport.connection import Timing
from spark_client.transport.connections import SidecarAddress
from spark_client.transport.dimension_names import dimension_names
from tests.spark_client.builders import ALL_DIMENSIONS
from tests.spark_client.memory_transport import ReachableSidecar, RecordingServer
from tools.processes.until import until


@pytest.fixture
def server() -> RecordingServer:
    """A sidecar with three dimensions, which is not served yet."""
    return RecordingServer(ReachableSidecar(ALL_DIMENSIONS))


def refusal(url: str, token_file: Path | None = None) -> SidelookError:
    """The error, after at most two attempts."""
    times_s = count(step=100)
    timing = Timing(clock=lambda: next(times_s), pause=lambda _: None)
    address = SidecarAddress(url, None if token_file is None else str(token_file))
    with pytest.raises(SidelookError) as caught:
        dimension_names(address, timing)
    return caught.value


def test_names_come_over_http(server: RecordingServer, tmp_path: Path) -> None:
    """All names, sorted, by one request with the token, which the file may end with a newline."""
    token = tmp_path / "token"
    token.write_text("secret\n")

    with server.at(tmp_path / "s.sock") as url:
        names = dimension_names(SidecarAddress(url, str(token)))

    (request,) = server.requests
    assert names == ("composite", "customers", "history")
    assert (request.path, request.headers["Authorization"]) == ("/v1/dimensions", "Bearer secret")


def test_names_are_awaited(server: RecordingServer, tmp_path: Path) -> None:
    """A sidecar that starts, or is overloaded, is tried again until it answers."""
    server.status = HTTPStatus.SERVICE_UNAVAILABLE
    found: list[tuple[str, ...]] = []
    path = tmp_path / "s.sock"
    reader = threading.Thread(
        target=lambda: found.append(dimension_names(SidecarAddress(f"unix://{path}")))
    )

    reader.start()
    with server.at(path):
        until(lambda: len(server.requests) > 0)
        server.status = None
        reader.join()

    assert found == [("composite", "customers", "history")]


def test_wait_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A wait has one log line; its error has the reason, and the option that bounds it."""
    times_s = count(step=5)
    timing = Timing(clock=lambda: next(times_s), pause=lambda _: None)
    url = f"unix://{tmp_path}/s.sock"

    with pytest.raises(SidecarUnreachable) as caught:
        dimension_names(SidecarAddress(url, connect_timeout_s=30), timing)

    reason = "no such socket; is the sidecar running, and its volume mounted here?"
    assert caplog.messages == [f"waiting up to 30 s for {url}: {reason}"]
    assert caught.value.reason == f"{reason}; tried for 30 s; see connect_timeout"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.parametrize(
    ("scheme", "answer", "kind", "reason"),
    [
        ("http", b"", SidecarUnreachable, "it closed the connection"),
        ("http", b"220 mail ready\r\n", InvalidRequest, "is no sidecar: BadStatusLine"),
        ("http", OK % (99, b"{"), InvalidRequest, "is no sidecar: IncompleteRead"),
        ("http", OK % (2, b"[]"), InvalidRequest, "/v1/dimensions lists no dimensions"),
        ("http", OK % (1, b"{"), InvalidRequest, "/v1/dimensions lists no dimensions"),
        ("http", OK % (18, b'{"dimensions":[1]}'), InvalidRequest, "lists no dimensions"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", SidecarUnreachable, "does not speak TLS"),
    ],
)
def test_other_servers_are_refused(
    scheme: str, answer: bytes, kind: type[SidelookError], reason: str
) -> None:
    """Only a list of names is an answer of a sidecar."""

    def serve() -> None:
        for _ in range(2 if kind is SidecarUnreachable else 1):
            with listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        error = refusal(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()

    assert type(error) is kind
    assert reason in error.detail


def test_unusable_tokens_are_not_sent(tmp_path: Path) -> None:
    """A missing file, and one with two lines, are errors that do not show the token."""
    token = tmp_path / "token"

    missing = refusal("unix:///nowhere", token)
    token.write_text("one\ntwo")
    double = refusal("unix:///nowhere", token)

    assert [missing.code, double.code] == [ErrorCode.UNAUTHORIZED] * 2
    assert missing.detail == f"the token file {token} cannot be read: No such file or directory"
    remedy = "write one line of printable ASCII into it"
    assert double.detail == (
        f"the token file {token} has several lines or control characters; {remedy}"
    )
