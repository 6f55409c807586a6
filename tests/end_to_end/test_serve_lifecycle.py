"""The sidecar as a process, from its start over SIGTERM to its exit code."""

import http.client
import json
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tools.processes.sidecar_process import (
    REQUEST_TIMEOUT_S,
    SERVE,
    Reply,
    SidecarProcess,
    free_port,
)

pytestmark = pytest.mark.real_path

CONFIGURATION = """
dimensions:
  customers:
    source: {{ kind: parquet, path: customers.parquet }}
    key: [id]
  orders:
    source: {{ kind: postgres, dsn: "postgresql://nobody@127.0.0.1:{port}/shop", table: orders }}
    key: [id]
"""


@contextmanager
def black_hole() -> Iterator[int]:
    """The port of a database that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    """Customers from a file, orders from a database that never answers."""
    rows = {"id": pa.array([7], pa.int64()), "name": ["Ada"]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "customers.parquet")
    with black_hole() as port:
        configuration = tmp_path / "sidelook.yaml"
        configuration.write_text(CONFIGURATION.format(port=port))
        yield SidecarProcess(tmp_path, [*SERVE, "--config", str(configuration)])


def lookup(sidecar: SidecarProcess, dimension: str, timeout_ms: int) -> Reply:
    """One key, by the Unix socket."""
    body = {"keys": [7], "timeout_ms": timeout_ms}
    return sidecar.post(f"/v1/dimensions/{dimension}/lookup", body)


def test_serves_until_told_to_stop(sidecar: SidecarProcess) -> None:
    """It answers at a socket for owner and group, ends with 0, and leaves no socket behind."""
    with sidecar.running(until="/livez"):
        mode = stat.S_IMODE(sidecar.socket.stat().st_mode)
        answer = lookup(sidecar, "customers", 5000).json()

    assert (mode, answer["outcomes"]) == (0o660, ["fetched"])
    assert not sidecar.socket.exists()


def test_second_sidecar_is_refused(sidecar: SidecarProcess) -> None:
    """A socket that is served is not taken over: the second one ends with 78 and says why."""
    second = SidecarProcess(sidecar.folder, sidecar.command, health_port=free_port())
    with sidecar.running(until="/livez"):
        ended = subprocess.run(
            second.command,
            cwd=second.code,
            env=second.whole_environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        answer = lookup(sidecar, "customers", 5000)

    assert (ended.returncode, answer.status) == (78, 200)
    assert "already running" in ended.stderr


def test_stale_socket_is_replaced(sidecar: SidecarProcess) -> None:
    """After a crash the socket file is still there, and the next sidecar serves in its place."""
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(sidecar.socket))

    with sidecar.running(until="/livez"):
        assert lookup(sidecar, "customers", 5000).status == 200


def test_request_under_way_is_answered(sidecar: SidecarProcess) -> None:
    """SIGTERM does not cut off a request: it gets its answer, and the exit code is 0."""
    with ExitStack() as connections:
        with sidecar.running(until="/livez"):
            waiting = connections.enter_context(closing(sent_lookup(sidecar, "orders", 1500)))
            # It has been taken in: what was sent after it is answered.
            assert lookup(sidecar, "orders", 100).status == 503
        answer = waiting.getresponse()
        told = (answer.status, json.load(answer)["code"])

    assert told == (503, "backend_unavailable")


def sent_lookup(
    sidecar: SidecarProcess, dimension: str, timeout_ms: int
) -> http.client.HTTPConnection:
    """One key, sent by the Unix socket; its answer is still to come."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(REQUEST_TIMEOUT_S)
    connection.sock.connect(str(sidecar.socket))
    body = json.dumps({"keys": [7], "timeout_ms": timeout_ms})
    path = f"/v1/dimensions/{dimension}/lookup"
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection
