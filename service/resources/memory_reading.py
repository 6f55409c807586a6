"""How much memory the process has, and how much its control group may have.

Reads what the kernel says (Linux); what follows from it is `memory_pressure`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

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
        folder, names = self._group()
        limit_bytes = _number(folder / names.limit)
        if limit_bytes is None or limit_bytes >= _NO_LIMIT:
            return MemoryReading(resident_bytes)
        # Cached files are given back by the kernel itself before anybody is killed.
        used_bytes = (_number(folder / names.usage) or 0) - _stat(folder, names.cached)
        return MemoryReading(resident_bytes, max(used_bytes, 0), limit_bytes)

    def _group(self) -> tuple[Path, "_Names"]:
        groups = self._root / "sys/fs/cgroup"
        for line in _text(self._root / "proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                return _existing(groups, path), _VERSION_2
            if "memory" in controllers.split(","):
                return _existing(groups / "memory", path), _VERSION_1
        return groups, _VERSION_2


@dataclass(frozen=True, slots=True)
class _Names:
    limit: str
    usage: str
    cached: str


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


def _existing(groups: Path, path: str) -> Path:
    # In a container the path may be the host's, and the container's own group stand at the root.
    folder = groups / path.strip("/")
    return folder if folder.is_dir() else groups


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None  # "max", or no such file: at the root group


def _stat(folder: Path, name: str) -> int:
    for line in _text(folder / "memory.stat").splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


def _text(file: Path) -> str:
    return file.read_text() if file.is_file() else ""
