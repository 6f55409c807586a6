"""Sidecar process: started, awaited and stopped from outside, as an operator would."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.1
REQUEST_TIMEOUT_S = 5.0
LOOPBACK = "127.0.0.1"


class SidecarFailed(RuntimeError):
    """The sidecar ended or did not become ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Addresses of a sidecar."""

    socket: Path
    http_port: int

    @property
    def endpoint(self) -> str:
        """Endpoint for the Spark client."""
        return f"unix://{self.socket}"

    @property
    def url(self) -> str:
        """URL of status page and metrics."""
        return f"http://{LOOPBACK}:{self.http_port}"

    def get(self, path: str) -> str:
        """Return a page; raises OSError or HTTPException, also for a status other than 200."""
        connection = HTTPConnection(LOOPBACK, self.http_port, timeout=REQUEST_TIMEOUT_S)
        with closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        if response.status != 200:
            message = f"{response.status} {response.reason}: {body[:200]}"
            raise HTTPException(message)
        return body


@contextmanager
def running_sidecar(settings: Mapping[str, Any], folder: Path) -> Iterator[Sidecar]:
    """Start a sidecar, wait until it is ready, and stop it at the end.

    `settings` need no `listen`. Configuration and log are written to `folder`. Raises
    SidecarFailed if the sidecar is not ready in time.
    """
    # The path of a socket must be short, and `folder` may be long.
    with TemporaryDirectory(prefix="sidelook-") as short:
        sidecar = Sidecar(Path(short) / "sidelook.sock", _free_port())
        http = f"{LOOPBACK}:{sidecar.http_port}"
        listen = {"unix": str(sidecar.socket), "http": http, "health": None}
        config, log_path = folder / "sidecar.yaml", folder / "sidecar.log"
        config.write_text(json.dumps({**settings, "listen": listen}, indent=2))  # valid YAML
        with log_path.open("w") as log, _process(config, log) as process:
            _wait_until_ready(sidecar, process, log_path)
            yield sidecar


@contextmanager
def _process(config: Path, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "service", "serve", "--config", str(config)]
    # In a session of its own the sidecar gets no Ctrl-C; the demonstration stops it in order.
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
            message = f"the sidecar is not ready ({reason}); its log:\n{log.read_text()[-2000:]}"
            raise SidecarFailed(message)
        time.sleep(POLL_INTERVAL_S)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])
