"""The demonstration with fewer flights."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pyarrow.parquet as pq
import pytest

from tools.processes.until import until

ROOT = Path(__file__).parent.parent.parent
FLIGHTS = 6_000
FEW_FLIGHTS = 600
MANY_FLIGHTS = 60_000  # enough for an interruption
TIMEOUT_S = 240.0
LIVE_SECONDS = 5
# The speed depends on the machine; a run of a user fails for it.
TOO_SLOW = "the p99 delay"
FIGURES = ("planes ", "airports ", "all ")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder of all runs."""
    # Not a folder of pytest: PostgreSQL runs as another user, who cannot enter those of root.
    with tempfile.TemporaryDirectory(prefix="sidelook-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.usefixtures("libraries")
def test_changes_show_in_the_stream(folder: Path) -> None:
    """A live run follows changing tables, and each change appears correctly."""
    with _running(folder, "--live", str(LIVE_SECONDS)) as demo:
        printed, _ = demo.communicate(timeout=TIMEOUT_S)

    wrong = [line for line in printed.splitlines() if "WRONG" in line or "FAILED" in line]
    assert [line for line in wrong if TOO_SLOW not in line] == [], printed
    assert demo.returncode == (1 if wrong else 0), printed
    rows = [line.split()[1:3] for line in printed.splitlines() if line.startswith(FIGURES)]
    assert rows[-3:] == [["150", "150"], ["4", "4"], ["154", "154"]]
    assert not list(folder.glob("postgres/postmaster.pid"))


def test_every_flight_comes_out_once(folder: Path) -> None:
    """The output equals a plain join; with --serve the sidecar runs until Ctrl-C."""
    with _running(folder, "--serve", "--mode", "ordered") as demo:
        printed = _read_until(demo, "Ctrl-C")
        page = re.findall(r"status page: (\S+)", printed)[-1]
        first = _lookups(page)
        until(lambda: _lookups(page) > first)
        family = psutil.Process(demo.pid).children(recursive=True)
        _interrupt(demo)
        rest, _ = demo.communicate(timeout=TIMEOUT_S)

    assert (demo.returncode, _still_running(family, folder)) == (0, []), printed + rest
    assert "all values and totals agree" in printed
    enriched = pq.read_table(folder / "enriched")
    assert sorted(enriched["flight_id"].to_pylist()) == list(range(FLIGHTS))
    assert "/metrics" in printed


def test_ctrl_c_leaves_no_process(folder: Path) -> None:
    """Two interruptions of a stream end all of its processes, and the run reports it."""
    shown = _interrupted(folder, f" of {MANY_FLIGHTS:,} flights", flights=MANY_FLIGHTS, times=2)

    assert [line for line in shown if not line.endswith(" flights")] == ["stopped"]


@pytest.mark.usefixtures("libraries")
def test_ctrl_c_ends_a_live_run(folder: Path) -> None:
    """An interrupted live run ends Kafka, Debezium and all other processes."""
    shown = _interrupted(folder, "changes committed", "--live", flights=FEW_FLIGHTS)

    assert [line for line in shown if "changes committed" not in line] == ["stopped"]


def _interrupted(
    folder: Path, words: str, *arguments: str, flights: int, times: int = 1
) -> list[str]:
    """The lines after an interruption at these words, which ends all processes with 130."""
    with _running(folder, *arguments, flights=flights) as demo:
        _read_until(demo, words)
        family = psutil.Process(demo.pid).children(recursive=True)
        for _ in range(times):
            _interrupt(demo)
        rest, _ = demo.communicate(timeout=TIMEOUT_S)
    assert (demo.returncode, _still_running(family, folder)) == (130, []), rest
    return rest.splitlines()


@contextmanager
def _running(
    folder: Path, *arguments: str, flights: int = FLIGHTS
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "demo", "--flights", str(flights), "--folder", str(folder)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.terminate()


def _lookups(page: str) -> int:
    with urlopen(f"{page}v1/status") as answer:  # noqa: S310  # of the demonstration's sidecar
        status = json.load(answer)
    return sum(sum(dimension["lookups"].values()) for dimension in status["dimensions"])


def _interrupt(demo: subprocess.Popen[str]) -> None:
    # As a terminal does: the whole process group receives it.
    os.killpg(demo.pid, signal.SIGINT)


def _still_running(family: list[psutil.Process], folder: Path) -> list[psutil.Process | str]:
    _, alive = psutil.wait_procs(family, timeout=10)
    # PostgreSQL is no child process; it removes this file when it ends.
    return [*alive, *map(str, folder.glob("postgres/postmaster.pid"))]


def _read_until(demo: subprocess.Popen[str], words: str) -> str:
    assert demo.stdout is not None
    printed = ""
    for line in demo.stdout:
        printed += line
        if words in line:
            return printed
    raise AssertionError(printed)
