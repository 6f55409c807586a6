"""A client that is killed releases its channel, credit and records."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.records import dimension
from tests.end_to_end.sidecars import configured, parquet
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess, free_port
from tools.processes.until import until

# A key without a row is queried again after half an hour, and stays in flight.
RETRY = {"on_missing": {"max_retries": 1, "delay": "30m"}}


@pytest.fixture(params=["unix", "tcp"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SidecarProcess, str]]:
    """A sidecar and the URL for a client."""
    slow = parquet(tmp_path, "rows", dimension(), "key", timeout="60m", retry=RETRY)
    http = f"127.0.0.1:{free_port()}"
    sidecar = configured(tmp_path, {"slow": slow}, environ={"SIDELOOK_LISTEN__HTTP": http})
    with sidecar.running():
        is_unix = request.param == "unix"
        yield sidecar, f"unix://{sidecar.socket}" if is_unix else f"http://{http}"


@contextmanager
def asker(url: str, code: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A client that has sent its lookup."""
    command = [sys.executable, "-m", "tests.chaos.silent_asker", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=code) as client:
        assert client.stdout is not None
        try:
            assert client.stdout.readline() == b"asked\n"
            yield client
        finally:
            client.kill()


def test_killed_client_holds_nothing(service: tuple[SidecarProcess, str]) -> None:
    """F1: the sidecar ends its lookups, closes its channel and returns its credit."""
    sidecar, url = service
    figures = SidecarFigures(sidecar)
    with asker(url, sidecar.code) as client:
        until(lambda: figures.levels()["sidelook_in_flight_records"] == 30)
        levels = figures.levels()

        client.kill()

        assert levels["sidelook_channels"] == 1
        assert levels["sidelook_credit_records"] >= 30
        figures.seconds_until_at_rest()
