"""Memory of the process, and usage and limit of its control group."""

import os
from dataclasses import dataclass
from pathlib import Path

# Files with limit and usage, and the entry of memory.stat for cached files.
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_NO_LIMIT = 2**60  # version 1 has a huge number for "none"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The folder of one controller of the process's control group."""

    folder: Path
    is_version_1: bool = False

    @classmethod
    def of(cls, controller: str, root: Path = Path("/")) -> "ControlGroup":
        """The group of `memory`, `cpu` or `pids`; `root` is where /proc and /sys are."""
        groups = root / "sys/fs/cgroup"
        for line in text_of(root / "proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                return cls(_existing(groups, path))
            if controller in controllers.split(","):
                return cls(_existing(groups / controller, path), is_version_1=True)
        return cls(groups)

    def text(self, name: str) -> str:
        """The text of a file of the group; empty if there is none, as at the root group."""
        return text_of(self.folder / name).strip()

    def number(self, name: str) -> int | None:
        """The number in a file of the group; None for "max" or without the file."""
        text = self.text(name)
        return int(text) if text.isdigit() else None

    @property
    def processors(self) -> float | None:
        """The limit of the controller `cpu`; None without one."""
        if self.is_version_1:  # without a limit the quota is -1
            quota, period = self.number("cpu.cfs_quota_us"), self.number("cpu.cfs_period_us")
            return quota / period if quota and period else None
        parts = self.text("cpu.max").split()  # "max 100000", or "50000 100000"
        is_limited = len(parts) == 2 and parts[0].isdigit()
        return int(parts[0]) / int(parts[1]) if is_limited else None


def text_of(file: Path) -> str:
    """The text of the file; empty if there is none."""
    return file.read_text() if file.is_file() else ""


def _existing(groups: Path, path: str) -> Path:
    # In a container the path may be the host's; the own group is then at the root.
    folder = groups / path.strip("/")
    return folder if folder.is_dir() else groups


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory in bytes; `group_limit_bytes` is None without a limit."""

    resident_bytes: int
    group_bytes: int = 0
    group_limit_bytes: int | None = None


class ProcessMemory:
    """The memory of this process; `root` is where /proc and /sys are."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> MemoryReading:
        """The present figures; raises OSError without /proc."""
        pages = int((self._root / "proc/self/statm").read_text().split()[1])
        resident_bytes = pages * self._page_bytes
        group = ControlGroup.of("memory", self._root)
        limit, usage, cached = _VERSION_1 if group.is_version_1 else _VERSION_2
        limit_bytes = group.number(limit)
        if limit_bytes is None or limit_bytes >= _NO_LIMIT:
            return MemoryReading(resident_bytes)
        # The kernel frees cached files before it kills a process.
        used_bytes = (group.number(usage) or 0) - _stat(group, cached)
        return MemoryReading(resident_bytes, max(used_bytes, 0), limit_bytes)


def _stat(group: ControlGroup, name: str) -> int:
    for line in group.text("memory.stat").splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0
