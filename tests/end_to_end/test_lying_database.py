"""A server that is no PostgreSQL: refused without TLS, and found by the liveness probe with it."""

import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.lying_server import LyingServer, lying_server
from tests.end_to_end.sidecars import configured, postgres, processor_s
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.until import until

LIVENESS = read_manifest(POD_TEMPLATE)["spec"]["initContainers"][0]["livenessProbe"]
# A message of type 0. asyncpg neither reads nor drops it, and parses it again forever.
LIE = bytes(5)
SPINNING_S = 1.0  # of processor time


@pytest.fixture
def server() -> Iterator[LyingServer]:
    """A server for each test."""
    with lying_server(LIE) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Probe:
    """The liveness probe of the pod template, sent to a port of this machine."""

    port: int

    def failure(self) -> str | None:
        """Send one request; None on success, else the reason."""
        address = f"http://127.0.0.1:{self.port}{LIVENESS['httpGet']['path']}"
        try:
            urllib.request.urlopen(address, timeout=LIVENESS["timeoutSeconds"]).close()
        except OSError as error:
            return str(error)
        return None


@contextmanager
def connected(server: LyingServer, folder: Path, sslmode: str) -> Iterator[tuple[Probe, int]]:
    """The liveness probe and the process of a sidecar that has connected to the server."""
    dsn = f"postgresql://user@127.0.0.1:{server.port}/db?sslmode={sslmode}"
    sidecar = configured(folder, {"customers": postgres(dsn, "t")})
    with sidecar.running(until="/livez", ends_by=signal.SIGKILL) as process:
        until(server.is_asked.is_set)
        yield Probe(sidecar.health_port), process.pid


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
