"""Timing of contenders in turn, and processor time by kind of process."""

import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one contender's counted rounds, in order."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)


def time_in_turn(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_ups: int = 1,
    fewer_rounds: Mapping[str, int] | None = None,
    before: Callable[[], object] | None = None,
) -> list[Timing]:
    """Run all `warm_ups` times, then `rounds` times in turn, A B C A B C, and time those.

    `fewer_rounds`: of those that take long, by name; they take part in the first rounds.
    `before`: done before each run, and not timed.
    """
    counted = dict.fromkeys(runs, rounds) | dict(fewer_rounds or {})
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-warm_ups, rounds):
        for name, run in runs.items():
            if number < counted[name]:
                elapsed_s = _timed(run, before)
                seconds[name] += [elapsed_s] if number >= 0 else []
    return [Timing(name, tuple(each)) for name, each in seconds.items()]


def _timed(run: Callable[[], object], before: Callable[[], object] | None) -> float:
    if before is not None:
        before()
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


KINDS = ("JVM", "Python workers", "sidecar", "PostgreSQL")

Seconds = Mapping[str, float]  # {kind: processor seconds}


def seconds_of(run: Callable[[], object], *, postgres: psutil.Process) -> Seconds:
    """What each kind spends while this runs, also in processes that end meanwhile.

    Those count for the kind of their parent, and only if that is still there. Raises
    psutil.NoSuchProcess if the server is not.
    """
    before = _spent(postgres)
    run()
    after = _spent(postgres)
    return {kind: after[kind] - before[kind] for kind in KINDS}


def postmaster(folder: Path) -> psutil.Process:
    """The process whose children are the server of this folder; OSError if none runs there."""
    return psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))


def _spent(postgres: psutil.Process) -> Seconds:
    server = {postgres, *postgres.children(recursive=True)}
    own = set(psutil.Process().children(recursive=True)) - server
    spent = dict.fromkeys(KINDS, 0.0)
    spent["PostgreSQL"] = sum(_processor_s(process) for process in server)
    for process in own:
        with suppress(psutil.Error):  # it has ended since
            spent[_kind(process.cmdline())] += _processor_s(process)
    return spent


def _processor_s(process: psutil.Process) -> float:
    """Its own, and that of its children that have ended; none of one that has ended itself."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(sum(times[:4]))  # user and system, its own and its children's
    return 0.0


def _kind(command: list[str]) -> str:
    words = " ".join(command[:3])
    if "java" in words:
        return "JVM"
    return "sidecar" if "service" in words else "Python workers"


_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def listener(socket_path: Path) -> psutil.Process:
    """The process; raises OSError if nobody listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path))
        found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return psutil.Process(_CREDENTIALS.unpack(found)[0])


def cpu_s(process: psutil.Process) -> float:
    """Its processor time so far, in user space and in the kernel."""
    times = process.cpu_times()
    return float(times.user + times.system)
