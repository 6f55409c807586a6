"""Memory of the process: readings, shares, pressure levels and measures."""

import asyncio
import gc
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from lookup_core.statistics import MemoryStatistics
from service.resources.memory_guard import (
    MemoryGuard,
    MemoryPressure,
    PressureLevel,
    PressureMeasures,
)
from service.resources.memory_reading import MemoryReading, ProcessMemory
from service.resources.memory_shares import MemoryShares
from service.wiring.cache_demand import CacheDemand

MIB = 1024 * 1024
BASE_BYTES = 150 * MIB
ALLOWANCE_BYTES = 16 * MIB
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NONE, SHRINK = PressureLevel.NONE, PressureLevel.SHRINK_CACHES
STOP, REFUSE = PressureLevel.STOP_CREDIT, PressureLevel.REFUSE


def put(root: Path, files: dict[str, str]) -> Path:
    """A machine with these files; the process has 100 pages."""
    for name, text in ({"proc/self/statm": "900 100 30 1 0 50 0"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_1(limit: int) -> dict[str, str]:
    """The files of a control group of version 1."""
    folder = "sys/fs/cgroup/memory/one/memory"
    return {
        "proc/self/cgroup": "3:cpu:/\n2:memory:/one\n",
        f"{folder}.limit_in_bytes": str(limit),
        f"{folder}.usage_in_bytes": "700",
        f"{folder}.stat": "total_inactive_file 100\n",
    }


def version_2(path: str, folder: str = "", **figures: str) -> dict[str, str]:
    """The files of a control group of version 2 at this path, which may be the host's."""
    found = {f"sys/fs/cgroup{folder}/memory.{name}": text for name, text in figures.items()}
    return {"proc/self/cgroup": f"0::{path}\n", **found}


ONE, STAT = "/pods/one", "anon 500\ninactive_file 200\n"


@pytest.mark.parametrize(
    ("files", "group"),
    [
        (version_2(ONE, ONE, max="1000\n", current="700\n", stat=STAT), (500, 1000)),
        (version_2("/of/the/host", max="1000", current="600"), (600, 1000)),
        (version_1(1000), (600, 1000)),
        (version_1(2**63 - 4096), ()),  # no limit
        (version_2("/", max="max\n"), ()),
        ({}, ()),
    ],
    ids=["version 2", "root", "version 1", "unlimited 1", "unlimited 2", "no group"],
)
def test_group_memory_is_read(
    tmp_path: Path, files: dict[str, str], group: tuple[int, ...]
) -> None:
    """The limit of the control group is read; cached files do not count as used."""
    reading = ProcessMemory(put(tmp_path, files)).read()

    assert reading == MemoryReading(100 * PAGE_BYTES, *group)


@pytest.mark.parametrize(
    ("wanted_bytes", "scale"), [(0, 1.0), (400, 1.0), (500, 0.8), (1600, 0.25)]
)
def test_memory_has_fixed_shares(wanted_bytes: int, scale: float) -> None:
    """Keys have a quarter, answers and bodies an eighth each, all caches one half."""
    shares = MemoryShares(800)

    assert (shares.credit_bytes, shares.stream_answer_bytes) == (200, 100)
    assert (shares.plain_answer_bytes, shares.body_bytes) == (100, 100)
    assert shares.cache_scale(wanted_bytes) == scale


@pytest.mark.parametrize(
    ("caches", "scale", "logged"),
    [
        ({"a": 600, "b": 100, "c": 100}, 0.5, [("a", 600, 300), ("b", 100, 50)]),
        ({"a": 300, "b": 100}, 1.0, []),
    ],
)
def test_reduced_caches_are_logged(
    caches: dict[str, int], scale: float, logged: list[tuple[str, int, int]]
) -> None:
    """Caches that exceed their share shrink alike; the log names each configured one."""
    with structlog.testing.capture_logs() as logs:
        CacheDemand(caches, ["a", "b"], scale, shared_bytes=0).log_reductions()

    lines = [(line["dimension"], line["max_bytes"], line["gets_bytes"]) for line in logs]
    assert lines == logged


@pytest.mark.parametrize(
    ("shares", "levels"),
    [
        *(([share], [NONE]) for share in (0.0, 0.849)),
        *(([0.85], [SHRINK]), ([0.92], [STOP]), ([0.95], [REFUSE]), ([2.0], [REFUSE])),
        (
            [0.95, 0.93, 0.919, 0.90, 0.889, 0.83, 0.81],
            [REFUSE, REFUSE, STOP, STOP, SHRINK, SHRINK, NONE],
        ),
    ],
)
def test_levels_have_hysteresis(shares: list[float], levels: list[PressureLevel]) -> None:
    """A level starts at its share and ends a little below."""
    pressure = MemoryPressure()

    assert [pressure.on_reading(share) for share in shares] == levels


def test_cache_share_follows_pressure() -> None:
    """Each reading above the threshold takes a fifth; each one well below gives a tenth back."""
    pressure, shares = MemoryPressure(), []
    for used_share in [0.9] * 6 + [0.8] + [0.74] * 11:
        pressure.on_reading(used_share)
        shares.append(round(pressure.cache_share, 9))

    growing = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0]
    assert shares == [0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0, *growing]


class Cycle:
    """An object that only a garbage collection frees."""

    def __init__(self) -> None:
        self.itself = self


@dataclass(slots=True)
class Process:
    """A process with a given memory, and a record of the measures."""

    reading: MemoryReading = field(default_factory=lambda: MemoryReading(BASE_BYTES))
    is_readable: bool = True
    is_settled: bool = True
    caches: list[float] = field(default_factory=list)
    allowed: list[tuple[str, bool]] = field(default_factory=list)

    def guard(self) -> MemoryGuard:
        """Its guard, with a limit of 100 MiB."""
        measures = PressureMeasures(
            limit_caches=self.caches.append,
            allow_credit=lambda is_allowed: self.allowed.append(("credit", is_allowed)),
            allow_requests=lambda is_allowed: self.allowed.append(("requests", is_allowed)),
        )
        return MemoryGuard(
            self.read, measures, limit_bytes=100 * MIB, is_settled=lambda: self.is_settled
        )

    def read(self) -> MemoryReading:
        """The reading, unless it is not readable."""
        if not self.is_readable:
            raise OSError(24, "Too many open files")
        return self.reading

    def grow(self, mebibytes: int) -> None:
        """Grow by this much beyond the allowance."""
        self.reading = MemoryReading(BASE_BYTES + ALLOWANCE_BYTES + mebibytes * MIB)


@pytest.fixture
def process() -> Process:
    """A process that has just started."""
    return Process()


def looked(process: Process, guard: MemoryGuard, *mebibytes: int) -> Iterator[PressureLevel]:
    """The level at each of these sizes."""
    for each in mebibytes:
        process.grow(each)
        yield guard.check()


def test_base_memory_does_not_count(process: Process) -> None:
    """Memory that the process has when it is settled does not count."""
    process.is_settled = False
    guard = process.guard()
    levels = [*looked(process, guard, 500)]
    process.is_settled = True
    levels.append(guard.check())
    process.grow(0)
    second = process.guard()
    process.reading = MemoryReading(BASE_BYTES)
    levels += [second.check(), *looked(process, second, 84)]

    assert levels == [NONE] * 4
    assert (process.caches, process.allowed) == ([], [])


def test_relief_comes_in_steps(process: Process) -> None:
    """Caches shrink first, then credit stops, then requests are refused; all of it ends."""
    guard = process.guard()
    before = guard.statistics()
    guard.check()

    levels = [*looked(process, guard, 86, 93)]
    statistics = guard.statistics()
    levels += looked(process, guard, 96, 50)

    resident_bytes = BASE_BYTES + ALLOWANCE_BYTES + 93 * MIB
    assert levels == [SHRINK, STOP, REFUSE, NONE]
    assert before == MemoryStatistics(0, 0.0, NONE)
    assert statistics == MemoryStatistics(resident_bytes, 0.93, STOP)
    assert process.caches == [0.8, 0.6, 0.4, 0.5]
    steps = [(True, True), (False, True), (False, False), (True, True)]
    assert process.allowed == [
        pair for credit, requests in steps for pair in (("credit", credit), ("requests", requests))
    ]


def test_refusing_process_collects_garbage(process: Process) -> None:
    """Unreachable cycles are freed, although nothing else allocates."""
    guard = process.guard()
    guard.check()
    assert [*looked(process, guard, 96)] == [REFUSE]
    gc.disable()
    try:
        cycle = weakref.ref(Cycle())
        before = cycle() is not None
        guard.check()
    finally:
        gc.enable()

    assert (before, cycle()) == (True, None)


@pytest.mark.parametrize(("is_settled", "used", "level"), [(True, 96, REFUSE), (False, 86, SHRINK)])
def test_group_limit_counts_always(
    process: Process, *, is_settled: bool, used: int, level: PressureLevel
) -> None:
    """The limit of the control group counts, also before the process is settled."""
    process.is_settled = is_settled
    guard = process.guard()
    guard.check()
    process.reading = MemoryReading(BASE_BYTES, used, 100)

    assert guard.check() is level


@pytest.mark.parametrize("is_readable", [True, False])
async def test_guard_runs_until_cancelled(process: Process, *, is_readable: bool) -> None:
    """The guard reads at once and again; unreadable memory changes nothing and ends nothing."""
    guard = process.guard()
    guard.check()
    process.grow(99)
    process.is_readable = is_readable
    running = asyncio.ensure_future(guard.run())
    await asyncio.sleep(0)

    assert not running.done()
    running.cancel()
    assert process.caches == ([0.8] if is_readable else [])
