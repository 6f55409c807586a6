"""What runs of containers have left that were killed, and its removal.

Only what carries the name of a process that is no more; live runs are not looked into.
"""

import os
import re
import shutil
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.end_to_end.until import until

CONTROL_GROUPS = Path("/sys/fs/cgroup")
END_TIMEOUT_S = 30.0
_NAME = re.compile(r"(sidelook-containers-(?P<process>\d+)-[^-]+)(-.*)?")


def folder_prefix(process: int) -> str:
    """How the folder of this process' run begins."""
    return f"sidelook-containers-{process}-"


def remove_dead_runs(folder: Path, *, root: Path = CONTROL_GROUPS) -> None:
    """Their folders in `folder`, and their control groups with the processes in them."""
    groups = control_groups("sidelook-containers", root=root)
    for name in _dead(each.name for each in (*folder.glob("sidelook-containers-*"), *groups)):
        for group in control_groups(name, root=root):
            kill_all(group)
        until(partial(_are_gone, name, root), within_s=END_TIMEOUT_S)
        shutil.rmtree(folder / name, ignore_errors=True)  # another start may be faster


def control_groups(name: str, *, root: Path = CONTROL_GROUPS) -> list[Path]:
    """Those of all containers whose runtime has the folder of that name."""
    # Version 1 has a tree for each resource, version 2 has one.
    return [group for pattern in (f"{name}-*", f"*/{name}-*") for group in root.glob(pattern)]


def are_removed(groups: list[Path]) -> bool:
    """Remove them; False if one is busy still."""
    try:
        for group in groups:
            group.rmdir()
    except OSError:
        return False
    return True


def _are_gone(name: str, root: Path) -> bool:
    return are_removed(control_groups(name, root=root))


def _dead(names: Iterable[str]) -> set[str]:
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    return {match[1] for match in matches if not Path("/proc", match["process"]).exists()}


def kill_all(group: Path) -> None:
    """Every process of the group."""
    processes = group / "cgroup.procs"
    for number in processes.read_text().split() if processes.exists() else ():
        try:
            os.kill(int(number), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has just ended
