"""Where a sidecar listens."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from lookup_core.errors import SidecarUnreachable
from spark_client.transport.endpoint import Endpoint, endpoint_of, limit_wait


def test_urls_of_all_kinds_are_parsed() -> None:
    """A socket's path, or host and port with the usual defaults."""
    path = endpoint_of("unix:///run/a.sock")
    plain = endpoint_of("http://127.0.0.1:8815")
    secure = endpoint_of("https://[::1]/")

    assert path == Endpoint("unix:///run/a.sock", "/run/a.sock", "localhost", 0, is_secure=False)
    assert plain == Endpoint("http://127.0.0.1:8815", None, "127.0.0.1", 8815, is_secure=False)
    assert secure == Endpoint("https://[::1]/", None, "::1", 443, is_secure=True)
    assert path.web_socket_url == "ws://localhost/v1/stream"
    assert plain.web_socket_url == "ws://127.0.0.1:8815/v1/stream"
    assert secure.web_socket_url == "wss://[::1]:443/v1/stream"


@pytest.mark.parametrize(
    "url",
    ["", "/run/a.sock", "unix:relative", "unix://host/path", "ftp://a", "http://", "http://a/b"],
)
def test_other_urls_are_refused(url: str) -> None:
    """An error names the three forms there are."""
    with pytest.raises(ValueError, match="unix:///path"):
        endpoint_of(url)


def test_missing_socket_names_its_path(tmp_path: Path) -> None:
    """Whoever forgot the volume reads which path was looked for."""
    url = f"unix://{tmp_path}/none.sock"

    with pytest.raises(SidecarUnreachable, match=r"none\.sock: no such socket.*mounted"):
        endpoint_of(url).connect(1.0)


def test_socket_without_listener_is_told(tmp_path: Path) -> None:
    """A socket file that a dead sidecar left behind is told from a missing one."""
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    with pytest.raises(SidecarUnreachable, match="nothing listens"):
        endpoint_of(f"unix://{path}").connect(1.0)


def test_forbidden_socket_names_who_asks(tmp_path: Path) -> None:
    """Without permission the message says which uid and gid asked, in vain."""
    url = f"unix://{tmp_path}/other.sock"
    reason = endpoint_of(url)._reason(PermissionError(13, "Permission denied"))

    assert reason == f"uid {os.getuid()}, gid {os.getgid()} may not open it (Permission denied)"


def test_other_errors_speak_for_themselves() -> None:
    """A timeout is named, whatever else happened is quoted."""
    endpoint = endpoint_of("http://127.0.0.1:1")

    assert endpoint._reason(TimeoutError()) == "it did not answer in time"
    assert endpoint._reason(OSError("no route")) == "no route"


def test_waits_share_a_deadline() -> None:
    """Each wait has what the ones before it have left; after the last there is none."""
    with socket.socket() as waiting:
        limit_wait(waiting, time.monotonic() + 60.0)
        left_s = waiting.gettimeout()
        with pytest.raises(TimeoutError):
            limit_wait(waiting, time.monotonic())

    assert left_s is not None
    assert 0.0 < left_s <= 60.0


def test_https_without_tls_is_unreachable() -> None:
    """A port that speaks something else than TLS is told from one that is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SidecarUnreachable, match="does not speak TLS"):
            endpoint_of(url).connect(5.0)
        thread.join()


def test_http_endpoint_connects() -> None:
    """A TCP endpoint gives a connected socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with endpoint_of(f"http://127.0.0.1:{port}").connect(1.0) as connected:
            assert connected.getpeername()[1] == port
