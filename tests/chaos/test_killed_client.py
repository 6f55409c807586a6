"""A client that is killed gives back what it held, at once: Spark ends tasks by SIGKILL."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.chaos.records import dimension
from tests.grace import GRACE_S
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess, free_port
from tools.processes.until import until

PROMISED_S = 1.0  # from the death of a client until nothing of it is held
CONFIG = """
listen: {{unix: sidelook.sock, http: "{http}"}}
dimensions:
  slow:  # a key without a row is asked again in half an hour: until then it is in flight
    source: {{kind: parquet, path: rows.parquet}}
    key: [key]
    timeout: 60m
    retry: {{on_missing: {{max_retries: 1, delay: 30m}}}}
"""


@pytest.fixture(params=["unix", "tcp"])
def service(request: pytest.FixtureRequest) -> Iterator[tuple[SidecarProcess, str]]:
    """A sidecar, and where a client finds it."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    pq.write_table(dimension(), folder / "rows.parquet")
    http = f"127.0.0.1:{free_port()}"
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(http=http))
    command = (sys.executable, "-m", "service", "serve", "--config", str(config))
    listen = {**SidecarProcess(folder).environ, "SIDELOOK_LISTEN__HTTP": http}
    sidecar = SidecarProcess(folder, command, listen)
    with sidecar.running():
        is_unix = request.param == "unix"
        yield sidecar, f"unix://{sidecar.socket}" if is_unix else f"http://{http}"
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def asker(url: str, code: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A client that has asked and waits."""
    command = [sys.executable, "-m", "tests.chaos.silent_asker", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=code) as client:
        assert client.stdout is not None
        try:
            assert client.stdout.readline() == b"asked\n"
            yield client
        finally:
            client.kill()


def test_killed_client_holds_nothing(service: tuple[SidecarProcess, str]) -> None:
    """Its lookups are left, its channel is gone and its credit back within a second."""
    sidecar, url = service
    figures = SidecarFigures(sidecar)
    with asker(url, sidecar.code) as client:
        until(lambda: figures.levels()["sidelook_in_flight_records"] == 30)
        levels = figures.levels()

        client.kill()

        assert levels["sidelook_channels"] == 1
        assert levels["sidelook_credit_records"] >= 30
        figures.seconds_until_at_rest(within_s=PROMISED_S + GRACE_S)
