"""Timing: contenders in turn, and processor time by kind of process."""

import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall time of the counted rounds of one contender, in order."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median in seconds."""
        return statistics.median(self.seconds)

    def cells(self, items: int, ratio: float) -> list[str]:
        """A row of a table: name, items per second in the median round, ratio, seconds by round."""
        seconds = " ".join(f"{each:.2f}" for each in self.seconds)
        return [self.name, f"{items / self.median_s:,.0f}", f"{ratio:.3f}", seconds]


def time_in_turn(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_ups: int = 1,
    fewer_rounds: Mapping[str, int] | None = None,
    before: Callable[[], object] | None = None,
) -> list[Timing]:
    """Run the contenders in turn (A B C A B C) and time all rounds after `warm_ups` rounds.

    `fewer_rounds`: {name: rounds} of slow contenders, which run in the first rounds only.
    `before`: called before each run; not timed.
    """
    counted = dict.fromkeys(runs, rounds) | dict(fewer_rounds or {})
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-warm_ups, rounds):
        for name, run in runs.items():
            if number < counted[name]:
                if before is not None:
                    before()
                started_s = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - started_s)
    return [Timing(name, tuple(each[warm_ups:])) for name, each in seconds.items()]


KINDS = ("JVM", "Python workers", "sidecar", "PostgreSQL")

Seconds = Mapping[str, float]  # {kind: processor seconds}


def seconds_of(run: Callable[[], object], *, postgres: psutil.Process) -> Seconds:
    """Run and return the processor seconds that each kind of process spends.

    A process that ends during the run counts for the kind of its parent if the parent still runs.
    Raises psutil.NoSuchProcess if the server does not run.
    """
    before = _spent(postgres)
    run()
    after = _spent(postgres)
    # The system counts hundredths of a second; differences of floats would have more digits.
    return {kind: round(after[kind] - before[kind], 2) for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Rate:
    """Measured rate of a contender."""

    timing: Timing
    events: int  # per round
    spent: Sequence[Seconds]  # of all rounds, warm-up first

    @property
    def per_second(self) -> float:
        """Events per second in the median round."""
        return self.events / self.timing.median_s

    def cpu_s(self, kind: str) -> float:
        """Return the processor seconds of a kind of process in the median of the counted rounds."""
        counted = self.spent[-len(self.timing.seconds) :]
        return statistics.median(each[kind] for each in counted)

    def cpu_ns(self, kind: str) -> float:
        """Return the same for each event, in nanoseconds."""
        return self.cpu_s(kind) / self.events * 1e9


def postmaster(dsn: str) -> psutil.Process:
    """Return the main process of the server on this machine."""
    with psycopg.connect(dsn) as connection:
        parent = psutil.Process(connection.info.backend_pid).parent()
    assert parent is not None  # it accepted the connection
    return parent


def _spent(postgres: psutil.Process) -> Seconds:
    server = {postgres, *postgres.children(recursive=True)}
    own = set(psutil.Process().children(recursive=True)) - server
    spent = dict.fromkeys(KINDS, 0.0)
    spent["PostgreSQL"] = sum(_processor_s(process) for process in server)
    for process in own:
        with suppress(psutil.Error):  # the process has ended
            spent[_kind(process.cmdline())] += _processor_s(process)
    return spent


def _processor_s(process: psutil.Process) -> float:
    """Return the time of the process and its ended children; 0 if the process has ended."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(sum(times[:4]))  # user and system, own and of children
    return 0.0


def _kind(command: list[str]) -> str:
    words = " ".join(command[:3])
    if "java" in words:
        return "JVM"
    return "sidecar" if "service" in words else "Python workers"


_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def listener(socket_path: Path) -> psutil.Process:
    """Return the process that listens on a Unix socket; raises OSError if none listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path))
        found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return psutil.Process(_CREDENTIALS.unpack(found)[0])


def cpu_s(process: psutil.Process) -> float:
    """Return the user and system time of the process, without its children."""
    times = process.cpu_times()
    return float(times.user + times.system)
