"""A sidecar as its own process, as a user would run it, and questions to it by HTTP.

Starts, waits and stops; what the answers must be is the tests' business.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SERVE = (sys.executable, "-m", "service", "serve")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.05
_HELD_PORTS = 100  # no test has so many at a time
_held: deque[socket.socket] = deque()


def free_port() -> int:
    """A loopback port that nobody listens on, and that nobody else is given for long."""
    # Whoever listens with SO_REUSEADDR, as servers do, may have it beside one that does not listen;
    # the kernel gives it to none of the neighbours, who all ask for some port, too.
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    if len(_held) > _HELD_PORTS:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port


def clean_environ() -> dict[str, str]:
    """The environment of the tests, without settings meant for another sidecar."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SIDELOOK_")}


@dataclass(frozen=True, slots=True)
class Reply:
    """The status and the body of an answer."""

    status: int
    text: str

    def json(self) -> Any:  # noqa: ANN401  # any JSON
        """The body, read as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class SidecarProcess:
    """Where a sidecar listens, and how it is started."""

    folder: Path  # for its socket and its log
    command: Sequence[str] = SERVE
    environ: Mapping[str, str] = field(default_factory=clean_environ)
    code: Path = ROOT  # the working directory
    health_port: int = field(default_factory=free_port)

    @property
    def socket(self) -> Path:
        """The way in for lookups."""
        return self.folder / "sidelook.sock"

    @property
    def whole_environ(self) -> dict[str, str]:
        """What makes the sidecar listen here whatever its file says; `environ` wins."""
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
        """Started, and `until` answers 200; told to stop at the end, which it must do cleanly.

        Unless it ends by SIGKILL, which leaves it no choice.
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
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers(path):
            log = (self.folder / "log").read_text()
            assert process.poll() is None, f"ended with {process.returncode}:\n{log}"
            assert time.monotonic() < deadline, f"no 200 from {path}:\n{log}"
            time.sleep(POLL_INTERVAL_S)

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
        return _ask(connection, "GET", path, body=None)

    def get(self, path: str) -> Reply:
        """GET through the Unix socket."""
        return _ask(_UnixConnection(self.socket), "GET", path, body=None)

    def post(self, path: str, body: object, *, headers: Mapping[str, str] | None = None) -> Reply:
        """POST of JSON through the Unix socket."""
        text, connection = json.dumps(body), _UnixConnection(self.socket)
        return _ask(connection, "POST", path, body=text, headers=headers)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP by a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _ask(
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
