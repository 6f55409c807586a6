"""A sidecar that is killed while its tasks are blocked by later operators.

A blocked task takes no answers, so the connection reopens its channel without it.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lookup_core.operator.batch_intake import FIRST_ROWS
from spark_client.lookup_settings import OutputMode, PassSettings
from spark_client.transport.connections import Connections, SidecarAddress
from tests.chaos.checker import Tally, tally
from tests.chaos.partition_run import PartitionRun, Progress
from tests.chaos.records import Records, dimension
from tests.end_to_end.sidecars import configured, parquet, url_of
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

PARTITIONS = 6
RECORDS = 25_000  # of a partition
SETTINGS = PassSettings(mode=OutputMode.ORDERED, capacity=20_000, timeout_s=300.0)
LIMITS = {"memory": "16MiB"}  # little, so that the channels need each other's credit


class Turnstile(Progress):
    """Blocks each task at the first rows behind its short first run, until `open`."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = threading.Event()
        self._emitted: Counter[int] = Counter()  # {thread: rows}

    def add(self, *, emitted: int = 0, running: int = 0) -> None:
        """See `Progress`; blocks a task that emits rows."""
        super().add(emitted=emitted, running=running)
        thread = threading.get_ident()
        self._emitted[thread] += emitted
        if self._emitted[thread] > FIRST_ROWS:
            self._opened.wait()

    @property
    def blocked(self) -> int:
        """The number of blocked tasks."""
        return sum(count > FIRST_ROWS for count in self._emitted.values())

    def open(self) -> None:
        """Let all rows pass."""
        self._opened.set()


@pytest.fixture
def sidecar() -> Iterator[SidecarProcess]:
    """A sidecar that is not started."""
    with TemporaryDirectory(prefix="sidelook-") as name:  # short: sockets have short paths
        rows = parquet(Path(name), "rows", dimension(), "key", timeout="300s")
        yield configured(Path(name), {"rows": rows}, limits=LIMITS)


def has_answered_all(figures: SidecarFigures) -> bool:
    """Whether records wait for credit and none is in flight."""
    levels = figures.levels()
    return levels["sidelook_in_flight_records"] == 0 < levels["sidelook_backlog_records"]


def test_blocked_tasks_outlive_their_sidecar(sidecar: SidecarProcess) -> None:
    """Answers received before the kill are kept, and the others are requested again."""
    figures, turnstile = SidecarFigures(sidecar), Turnstile()
    connection = Connections().to(SidecarAddress(url_of(sidecar)))
    runs = [
        PartitionRun(
            Records.seeded(index, RECORDS),
            f"partition {index}",
            connection,
            "rows",
            SETTINGS,
            turnstile,
        )
        for index in range(PARTITIONS)
    ]
    tasks = [threading.Thread(target=run.run, daemon=True) for run in runs]

    with ExitStack() as stack:
        stack.callback(turnstile.open)  # whatever fails
        with sidecar.running(ends_by=signal.SIGKILL):
            for task in tasks:
                task.start()
            until(lambda: turnstile.blocked == PARTITIONS and has_answered_all(figures))
        with sidecar.running():
            until(lambda: figures.channels() == PARTITIONS or not connection._thread)
            turnstile.open()
            for task in tasks:
                task.join()

    tallies = [tally(run.records, run.emitted(), SETTINGS.mode) for run in runs]
    assert tallies == [Tally()] * PARTITIONS
