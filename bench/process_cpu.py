"""Processor time by the kind of process that spent it: Spark's two, the sidecar, PostgreSQL.

Of the processes that this one has started and their children, and of one server of PostgreSQL,
which is nobody's child. Says where time goes even when all cores are busy and seconds on the wall
tell little.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

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
