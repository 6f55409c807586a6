"""The sidecar as a process of its own, started and stopped as an operator would.

Knows commands, addresses and signals only; nothing of the service is imported.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.1
REQUEST_TIMEOUT_S = 5.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar that may take lookups."""

    socket: Path
    http_port: int

    @property
    def endpoint(self) -> str:
        """What Spark's side connects to."""
        return f"unix://{self.socket}"

    @property
    def url(self) -> str:
        """Where people and Prometheus look."""
        return f"http://{LOOPBACK}:{self.http_port}"

    def get(self, path: str) -> str:
        """The body of a page; raises OSError or HTTPException, also for another status than 200."""
        connection = HTTPConnection(LOOPBACK, self.http_port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return _body(connection.getresponse())
        finally:
            connection.close()


class SidecarFailed(RuntimeError):
    """The sidecar ended or did not become ready; the message holds what it said last."""


@contextmanager
def running_sidecar(settings: Mapping[str, Any], folder: Path) -> Iterator[Sidecar]:
    """Start a sidecar with these settings, wait until it is ready, and stop it at the end.

    Its configuration and its log are left in `folder`; where it listens is decided here.
    """
    # Paths of sockets are short by law of the kernel; a checkout may lie anywhere.
    with TemporaryDirectory(prefix="sidelook-") as short:
        sidecar = Sidecar(Path(short) / "sidelook.sock", _free_port())
        config, log_path = folder / "sidecar.yaml", folder / "sidecar.log"
        # JSON is YAML, too.
        config.write_text(json.dumps({**settings, "listen": _listen(sidecar)}, indent=2))
        with log_path.open("w") as log, _process(config, log) as process:
            _wait_until_ready(sidecar, process, log_path)
            yield sidecar


@contextmanager
def _process(config: Path, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "service", "serve", "--config", str(config)]
    # A session of its own: Ctrl-C is for the demonstration, which then stops the sidecar in order.
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(sidecar: Sidecar, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            sidecar.get("/readyz")
        except (OSError, HTTPException) as error:
            reason = error
        else:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text()[-2000:]
            message = f"the sidecar is not ready ({reason}); it said last:\n{said}"
            raise SidecarFailed(message)
        time.sleep(POLL_INTERVAL_S)


def _body(response: HTTPResponse) -> str:
    body = response.read().decode()
    if response.status != 200:
        message = f"{response.status} {response.reason}: {body[:200]}"
        raise HTTPException(message)
    return body


def _listen(sidecar: Sidecar) -> dict[str, str | None]:
    http = f"{LOOPBACK}:{sidecar.http_port}"
    return {"unix": str(sidecar.socket), "http": http, "health": None}


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])
