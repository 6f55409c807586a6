"""How much memory the process has, and how much its control group may have.

Reads what the kernel says (Linux); what follows from it is `memory_pressure`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from service.resources.control_group import ControlGroup

_NO_LIMIT = 2**60  # version 1 writes a huge number for "none"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Bytes now; the group's limit is None where it has none."""

    resident_bytes: int
    group_bytes: int = 0
    group_limit_bytes: int | None = None


class ProcessMemory:
    """The memory of this process; `root` is where /proc and /sys are."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> MemoryReading:
        """The figures now; raises OSError where there is no /proc."""
        pages = int((self._root / "proc/self/statm").read_text().split()[1])
        resident_bytes = pages * self._page_bytes
        group = ControlGroup.of("memory", self._root)
        names = _VERSION_1 if group.is_version_1 else _VERSION_2
        limit_bytes = group.number(names.limit)
        if limit_bytes is None or limit_bytes >= _NO_LIMIT:
            return MemoryReading(resident_bytes)
        # Cached files are given back by the kernel itself before anybody is killed.
        used_bytes = (group.number(names.usage) or 0) - _stat(group, names.cached)
        return MemoryReading(resident_bytes, max(used_bytes, 0), limit_bytes)


@dataclass(frozen=True, slots=True)
class _Names:
    limit: str
    usage: str
    cached: str


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


def _stat(group: ControlGroup, name: str) -> int:
    for line in group.text("memory.stat").splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0
