"""The sidecar as a subprocess, with an HTTP client and a reader of its metrics.

Starts, waits and stops; callers judge the responses.
"""

import atexit
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tools.processes.until import soon, until

ROOT = Path(__file__).parents[2]
SERVE = (sys.executable, "-m", "service", "serve")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 30.0
_HELD_PORTS = 100  # more than one test uses
LOOKUPS = "sidelook_lookups_total"
CHANNELS = "sidelook_channels"
LEVELS = (  # gauges that are 0 when no client is connected
    CHANNELS,
    "sidelook_credit_records",
    "sidelook_in_flight_records",
    "sidelook_backlog_records",
)
_held: deque[socket.socket] = deque()


@atexit.register
def _release_ports() -> None:
    while _held:
        _held.popleft().close()


def free_port() -> int:
    """A free loopback port; no other process receives it while this process holds it."""
    # A bound socket that does not listen reserves the port: the kernel assigns it to no other
    # process, and a server with SO_REUSEADDR can still listen on it.
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    if len(_held) > _HELD_PORTS:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port


def clean_environ() -> dict[str, str]:
    """The environment of this process without `SIDELOOK_…` settings of another sidecar."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SIDELOOK_")}


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of an HTTP response."""

    status: int
    text: str

    def json(self) -> Any:  # noqa: ANN401  # any JSON
        """The body, read as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class SidecarProcess:
    """Addresses and command of a sidecar."""

    folder: Path  # for its socket and its log
    command: Sequence[str] = SERVE
    environ: Mapping[str, str] = field(default_factory=clean_environ)
    code: Path = ROOT  # the working directory
    health_port: int = field(default_factory=free_port)

    @property
    def socket(self) -> Path:
        """The Unix socket for lookups."""
        return self.folder / "sidelook.sock"

    @property
    def whole_environ(self) -> dict[str, str]:
        """Sets the listeners, whatever the configuration file says; `environ` takes precedence."""
        listen = {
            "SIDELOOK_LISTEN__UNIX": str(self.socket),
            "SIDELOOK_LISTEN__HTTP": "null",
            "SIDELOOK_LISTEN__HEALTH": f"127.0.0.1:{self.health_port}",
        }
        return {**listen, **self.environ}

    @contextmanager
    def running(
        self, *, until: str = "/readyz", ends_by: signal.Signals = signal.SIGTERM
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start it, wait until path `until` returns 200, and stop it with signal `ends_by`.

        Exit status 0 is asserted, except after SIGKILL.
        """
        log = self.folder / "log"
        with log.open("w") as standard_error:
            process = subprocess.Popen(
                self.command,
                cwd=self.code,
                env=self.whole_environ,
                stderr=standard_error,
            )
        try:
            self._wait_for(until, process)
            yield process
            process.send_signal(ends_by)
            expected = -ends_by if ends_by is signal.SIGKILL else 0
            assert process.wait(STOP_TIMEOUT_S) == expected, log.read_text()
        finally:
            process.kill()
            process.wait()

    def _wait_for(self, path: str, process: "subprocess.Popen[bytes]") -> None:
        def is_over() -> bool:
            return self._answers(path) or process.poll() is not None

        is_in_time = soon(is_over, within_s=START_TIMEOUT_S)
        log = (self.folder / "log").read_text()
        assert process.poll() is None, f"ended with {process.returncode}:\n{log}"
        assert is_in_time, f"no 200 from {path}:\n{log}"

    def _answers(self, path: str) -> bool:
        try:
            return self.health(path).status == 200
        except OSError:
            return False  # not listening yet

    def health(self, path: str) -> Reply:
        """GET from the health listener."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.health_port, timeout=REQUEST_TIMEOUT_S
        )
        return _request(connection, "GET", path, body=None)

    def get(self, path: str) -> Reply:
        """GET through the Unix socket."""
        return _request(UnixConnection(self.socket), "GET", path, body=None)

    def post(self, path: str, body: object, *, headers: Mapping[str, str] | None = None) -> Reply:
        """POST of JSON through the Unix socket."""
        text, connection = json.dumps(body), UnixConnection(self.socket)
        return _request(connection, "POST", path, body=text, headers=headers)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    *,
    body: str | None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    try:
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body=body, headers={**kind, **(headers or {})})
        response = connection.getresponse()
        return Reply(response.status, response.read().decode())
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class SidecarFigures:
    """Metrics of one sidecar, summed over their labels; each reading is a scrape."""

    sidecar: SidecarProcess

    def read(self) -> dict[str, float]:
        """{sample name: sum over its labels} of all metrics."""
        figures: dict[str, float] = {}
        for family in text_string_to_metric_families(self.sidecar.health("/metrics").text):
            for sample in family.samples:
                figures[sample.name] = figures.get(sample.name, 0.0) + sample.value
        return figures

    def lookups(self) -> float:
        """Keys that have received an outcome since the process started."""
        return self.read()[LOOKUPS]

    def channels(self) -> float:
        """Open channels."""
        return self.read()[CHANNELS]

    def levels(self) -> dict[str, float]:
        """The gauges that are 0 at rest."""
        figures = self.read()
        return {name: figures[name] for name in LEVELS}

    def seconds_until_at_rest(self, *, within_s: float = 20.0) -> float:
        """The seconds until no channel, credit or record is held; raises NotSo."""
        return until(lambda: not any(self.levels().values()), within_s=within_s)
