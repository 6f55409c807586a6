"""A server that is no PostgreSQL: refused without TLS, and found by the liveness probe with it."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.end_to_end.sidecars import configured, processor_s
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.until import until
from tools.rehearsal.kubelet import Probe

CONTAINER = read_manifest(POD_TEMPLATE)["spec"]["initContainers"][0]
# A message of type 0. asyncpg neither reads nor drops it, and parses it again forever.
LIE = bytes(5)
SPINNING_S = 1.0  # of processor time


@dataclass(frozen=True, slots=True)
class LyingServer:
    """Accepts connections, and sends nothing until `may_lie` is set."""

    listener: socket.socket
    is_asked: threading.Event = field(default_factory=threading.Event)
    may_lie: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        """Serve until the listener is shut down."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=(connection,), daemon=True).start()

    def _lie(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # the sidecar may have ended
            connection.recv(1024)
            self.is_asked.set()
            self.may_lie.wait()
            connection.sendall(LIE)
            connection.recv(1024)  # the end of the connection


@pytest.fixture
def server() -> Iterator[LyingServer]:
    """A server for each test."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = LyingServer(listener)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def connected(server: LyingServer, folder: Path, sslmode: str) -> Iterator[tuple[Probe, int]]:
    """The liveness probe and the process of a sidecar that has connected to the server."""
    port = server.listener.getsockname()[1]
    dsn = f"postgresql://user@127.0.0.1:{port}/db?sslmode={sslmode}"
    source = {"kind": "postgres", "dsn": dsn, "table": "t"}
    sidecar = configured(folder, {"customers": {"source": source, "key": ["id"]}})
    probe = Probe.of(CONTAINER, "livenessProbe", address="127.0.0.1")
    with sidecar.running(until="/livez", ends_by=signal.SIGKILL) as process:
        until(server.is_asked.is_set)
        yield replace(probe, port=sidecar.health_port), process.pid


def test_spinning_parser_fails_liveness(server: LyingServer, tmp_path: Path) -> None:
    """If asyncpg spins, the kubelet's probe times out."""
    with connected(server, tmp_path, "disable") as (probe, process):
        assert probe.failure() is None
        before_s = processor_s(process)

        server.may_lie.set()

        until(lambda: processor_s(process) > before_s + SPINNING_S)
        assert "timed out" in str(probe.failure())


@pytest.mark.parametrize("sslmode", ["prefer", "require"])
def test_server_without_tls_is_not_parsed(
    server: LyingServer, tmp_path: Path, sslmode: str
) -> None:
    """A server that refuses TLS with other bytes is disconnected, and the sidecar stays alive."""
    with connected(server, tmp_path, sslmode) as (probe, _):
        server.may_lie.set()

        until(lambda: "dimension.unavailable" in (tmp_path / "log").read_text())
        assert probe.failure() is None
