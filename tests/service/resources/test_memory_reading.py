"""What the kernel says about memory, in its several forms."""

import os
from pathlib import Path

from service.resources.memory_reading import MemoryReading, ProcessMemory

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def put(root: Path, files: dict[str, str]) -> ProcessMemory:
    """A machine with these files; the process has 100 pages."""
    for name, text in ({"proc/self/statm": "900 100 30 1 0 50 0"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return ProcessMemory(root)


def test_own_memory_is_read() -> None:
    """On this machine the process has some megabytes, and less than it may have."""
    reading = ProcessMemory().read()

    assert reading.resident_bytes > 10_000_000
    assert reading.group_limit_bytes is None or reading.group_bytes < reading.group_limit_bytes


def test_group_of_version_2_is_read(tmp_path: Path) -> None:
    """Cached files do not count: the kernel takes them back by itself."""
    memory = put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/one\n",
            "sys/fs/cgroup/pods/one/memory.max": "1000\n",
            "sys/fs/cgroup/pods/one/memory.current": "700\n",
            "sys/fs/cgroup/pods/one/memory.stat": "anon 500\ninactive_file 200\n",
        },
    )

    assert memory.read() == MemoryReading(100 * PAGE_BYTES, 500, 1000)


def test_group_at_the_root_is_found(tmp_path: Path) -> None:
    """In a container the path may be one of the host, and the own group stand at the root."""
    memory = put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod7\n",
            "sys/fs/cgroup/memory.max": "1000",
            "sys/fs/cgroup/memory.current": "600",
        },
    )

    assert memory.read() == MemoryReading(100 * PAGE_BYTES, 600, 1000)


def test_group_of_version_1_is_read(tmp_path: Path) -> None:
    """Older kernels have other names, and a huge number for no limit."""
    files = {
        "proc/self/cgroup": "3:cpu:/\n2:memory:/one\n",
        "sys/fs/cgroup/memory/one/memory.limit_in_bytes": "1000",
        "sys/fs/cgroup/memory/one/memory.usage_in_bytes": "700",
        "sys/fs/cgroup/memory/one/memory.stat": "total_inactive_file 100\n",
    }
    limited = put(tmp_path / "limited", files).read()
    files["sys/fs/cgroup/memory/one/memory.limit_in_bytes"] = str(2**63 - 4096)

    unlimited = put(tmp_path / "unlimited", files).read()

    assert limited == MemoryReading(100 * PAGE_BYTES, 600, 1000)
    assert unlimited == MemoryReading(100 * PAGE_BYTES)


def test_no_group_is_no_limit(tmp_path: Path) -> None:
    """Without a limit, or without groups, only the process itself counts."""
    unlimited = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}

    assert put(tmp_path / "a", unlimited).read() == MemoryReading(100 * PAGE_BYTES)
    assert put(tmp_path / "b", {}).read() == MemoryReading(100 * PAGE_BYTES)
