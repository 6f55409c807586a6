"""What a rehearsal has left behind, as the kernel tells it.

Removes nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tests.image.dead_runs import control_groups


def left_over(folder: Path) -> list[str]:
    """Processes beside this one in its namespace, mounts below `folder`, our control groups."""
    return [*_processes(), *_mounts(folder), *map(str, control_groups(folder.name))]


def _processes() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            yield f"process {entry.name} {command}"


def _mounts(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = line.split()[1]
        if target.startswith(f"{folder}/"):
            yield f"mount {target}"
