"""What the control group allows."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.doctor.sidecar.process_limits_check import (
    ProcessLimits,
    ProcessLimitsCheck,
    limit_findings,
    memory_finding,
    read_process_limits,
)
from tests.service.doctor.findings import MATTER, gathered, severities

MIB = 2**20
FREE = ProcessLimits()


@pytest.mark.parametrize(
    ("limit_bytes", "severity"),
    [
        *[(None, "ok"), (768 * MIB, "ok")],
        *[(768 * MIB - 1, "warning"), (512 * MIB, "warning"), (512 * MIB - 1, "error")],
    ],
)
def test_memory_needs_half_as_much_again(limit_bytes: int | None, severity: str) -> None:
    """Less than limits.memory is an error, less than half as much again a warning."""
    finding = memory_finding(MATTER, 512 * MIB, limit_bytes)

    assert finding.severity == severity
    assert ("768MiB" in finding.remedy) == (severity != "ok")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (FREE, ["ok", "ok"]),
        (replace(FREE, processors=1.0), ["ok", "ok"]),
        (replace(FREE, processors=0.99), ["warning", "ok"]),
        (replace(FREE, threads=31, threads_in_use=30), ["ok", "ok"]),
        (replace(FREE, threads=30), ["ok", "error"]),
    ],
)
def test_processors_and_threads_are_judged(limits: ProcessLimits, expected: list[str]) -> None:
    """Less than a processor throttles; besides its main thread the sidecar needs 30 here."""
    assert severities(limit_findings(MATTER, limits, needed=30)) == expected


def put(root: Path, files: dict[str, str]) -> Path:
    """A machine with these files."""
    for name, text in ({"proc/self/statm": "900 100 30 1 0 50 0"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_group_of_version_2_is_read(tmp_path: Path) -> None:
    """Quota and period, threads and those in use, memory."""
    group = "sys/fs/cgroup/one"
    root = put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/one\n",
            f"{group}/cpu.max": "50000 100000\n",
            f"{group}/pids.max": "40\n",
            f"{group}/pids.current": "12\n",
            f"{group}/memory.max": "1000\n",
        },
    )

    assert read_process_limits(root) == ProcessLimits(1000, 0.5, 40, 12)


def test_group_of_version_1_is_read(tmp_path: Path) -> None:
    """Each controller has a folder of its own; a quota of -1 is none."""
    groups = "sys/fs/cgroup"
    root = put(
        tmp_path,
        {
            "proc/self/cgroup": "4:pids:/p\n3:cpu,cpuacct:/c\n2:memory:/m\n",
            f"{groups}/cpu/c/cpu.cfs_quota_us": "150000\n",
            f"{groups}/cpu/c/cpu.cfs_period_us": "100000\n",
            f"{groups}/pids/p/pids.max": "max\n",
            f"{groups}/memory/m/memory.limit_in_bytes": "1000\n",
        },
    )

    assert read_process_limits(root) == ProcessLimits(1000, 1.5, None)


async def test_group_without_limits_is_well(tmp_path: Path) -> None:
    """Where nothing is limited, nothing is found; memory is judged if a configuration says it."""
    root = put(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"})

    with_memory = await gathered(ProcessLimitsCheck(MIB, root).findings())
    without = await gathered(ProcessLimitsCheck(None, root).findings())

    assert (severities(with_memory), severities(without)) == (["ok"] * 3, ["ok"] * 2)
