"""Processor time by the kind of process that spent it: Spark's two, the sidecar, PostgreSQL.

Of the processes that this one has started and their children, and of the embedded server. Says
where time goes even when all cores are busy and seconds on the wall tell little.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil

KINDS = ("JVM", "Python workers", "sidecar", "PostgreSQL")

Seconds = Mapping[str, float]  # {kind: processor seconds}


def seconds_of(run: Callable[[], object]) -> Seconds:
    """What each kind spends while this runs, also in processes that end meanwhile.

    Those count for the kind of their parent, and only if that is still there.
    """
    before = _spent()
    run()
    after = _spent()
    return {kind: after[kind] - before[kind] for kind in KINDS}


def _spent() -> Seconds:
    spent = dict.fromkeys(KINDS, 0.0)
    for process in [*psutil.Process().children(recursive=True), *_embedded_servers()]:
        with suppress(psutil.Error):  # it has ended since
            times = process.cpu_times()
            ended_s = times.children_user + times.children_system
            spent[_kind(process.cmdline())] += times.user + times.system + ended_s
    return spent


def _kind(command: list[str]) -> str:
    words = " ".join(command[:3])
    if "postgres" in words:
        return "PostgreSQL"
    if "java" in words:
        return "JVM"
    return "sidecar" if "service" in words else "Python workers"


def _embedded_servers() -> list[psutil.Process]:
    """Those of the wheel; they are nobody's children."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            if process.name() == "postgres" and process.exe().startswith(sys.prefix):
                found.append(process)
    return found
