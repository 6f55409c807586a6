"""A server that is no database: what a sidecar bears of it, and who notices what it does not."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.sidecar_process import SERVE, SidecarProcess
from tools.processes.until import until
from tools.rehearsal.kubelet import Probe

CONTAINER = read_manifest(POD_TEMPLATE)["spec"]["initContainers"][0]
# A message of type 0. asyncpg neither reads nor drops it, and looks at it again, for ever.
LIE = bytes(5)
SPINNING_S = 1.0  # of processor time


@dataclass(frozen=True, slots=True)
class LyingServer:
    """Takes connections, and says nothing on them until it is to lie."""

    listener: socket.socket
    is_asked: threading.Event = field(default_factory=threading.Event)
    may_lie: threading.Event = field(default_factory=threading.Event)

    def dsn(self, sslmode: str) -> str:
        """How it is reached."""
        port = self.listener.getsockname()[1]
        return f"postgresql://anybody@127.0.0.1:{port}/db?sslmode={sslmode}"

    def serve(self) -> None:
        """Until the listener is shut down."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=(connection,), daemon=True).start()

    def _lie(self, connection: socket.socket) -> None:
        # Who has given up or was killed meanwhile leaves a connection that is reset.
        with connection, suppress(ConnectionError):
            connection.recv(1024)
            self.is_asked.set()
            self.may_lie.wait()
            connection.sendall(LIE)
            connection.recv(1024)  # its end


@pytest.fixture
def server() -> Iterator[LyingServer]:
    """One of each test."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = LyingServer(listener)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def believing(server: LyingServer, folder: Path, sslmode: str) -> Iterator[tuple[Probe, int]]:
    """A sidecar that has asked the server, its liveness probe and its process."""
    source = {"kind": "postgres", "dsn": server.dsn(sslmode), "table": "t"}
    settings = {"dimensions": {"customers": {"source": source, "key": ["id"]}}}
    (folder / "sidelook.yaml").write_text(json.dumps(settings))
    sidecar = SidecarProcess(folder, (*SERVE, "--config", str(folder / "sidelook.yaml")))
    probe = Probe.of(CONTAINER, "livenessProbe", address="127.0.0.1")
    with sidecar.running(until="/livez", ends_by=signal.SIGKILL) as process:
        until(server.is_asked.is_set)
        yield replace(probe, port=sidecar.health_port), process.pid


def processor_time_s(process: int) -> float:
    """What it has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_spinning_parser_fails_liveness(server: LyingServer, tmp_path: Path) -> None:
    """Where nobody can interrupt asyncpg, the kubelet's probe gets no answer and ends it."""
    with believing(server, tmp_path, "disable") as (probe, process):
        assert probe.failure() is None
        before_s = processor_time_s(process)

        server.may_lie.set()

        until(lambda: processor_time_s(process) > before_s + SPINNING_S)
        assert "timed out" in str(probe.failure())


@pytest.mark.parametrize("sslmode", ["prefer", "require"])
def test_server_without_tls_is_not_parsed(
    server: LyingServer, tmp_path: Path, sslmode: str
) -> None:
    """Who is first asked for TLS and says anything else is let go, and the sidecar lives."""
    with believing(server, tmp_path, sslmode) as (probe, _):
        server.may_lie.set()

        until(lambda: "dimension.unavailable" in (tmp_path / "log").read_text())
        assert probe.failure() is None
