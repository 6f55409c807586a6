"""Process limits check: memory, processors and threads of this process's control group.

These are the sidecar's limits only if the doctor runs in the sidecar's container.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.config.quantity import size_text
from service.doctor.finding import Finding, Subject
from service.resources.memory_reading import ControlGroup, ProcessMemory
from service.resources.thread_limit import needed_threads

MEMORY_FACTOR = 1.5  # of limits.memory; the rest is for the interpreter and its libraries
_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of a control group; None: no limit."""

    memory_bytes: int | None = None
    processors: float | None = None
    threads: int | None = None
    threads_in_use: int = 0


def check_process_limits(
    subject: Subject, memory_bytes: int | None, root: Path = Path("/")
) -> Iterator[Finding]:
    """Yield a finding for each limit.

    `memory_bytes` is limits.memory, None without a configuration; `root` contains /proc and /sys.
    """
    limits = read_process_limits(root)
    if memory_bytes is not None:
        yield memory_finding(subject, memory_bytes, limits.memory_bytes)
    yield from limit_findings(subject, limits, needed=needed_threads())


def memory_finding(subject: Subject, wanted_bytes: int, limit_bytes: int | None) -> Finding:
    """Return whether `limits.memory` fits into the memory limit of the container."""
    least_bytes = -int(-MEMORY_FACTOR * wanted_bytes // _MEBIBYTE) * _MEBIBYTE
    wanted = f"limits.memory is {size_text(wanted_bytes)}"
    if limit_bytes is None:
        return subject.ok(f"{wanted}, and memory has no limit")
    # In whole mebibytes: the kernel rounds limits to pages.
    limit = f"{wanted}, and the container has {size_text(limit_bytes // _MEBIBYTE * _MEBIBYTE)}"
    remedy = f"give the container at least {size_text(least_bytes)}, or lower limits.memory"
    if limit_bytes < wanted_bytes:
        return subject.error(f"{limit}: the kernel will kill the sidecar", remedy)
    if limit_bytes < least_bytes:
        return subject.warning(f"{limit}: too little with the interpreter", remedy)
    return subject.ok(limit)


def limit_findings(subject: Subject, limits: ProcessLimits, *, needed: int) -> Iterator[Finding]:
    """Yield whether processors and threads suffice; `needed` is without the main thread."""
    if limits.processors is not None and limits.processors < 1.0:
        yield subject.warning(
            f"is limited to {limits.processors:g} processors: throttling stops the event loop for "
            "all tasks of the executor",
            "give the container a CPU request without a limit, or at least one processor",
        )
    else:
        yield subject.ok(
            "has at least one processor" if limits.processors else "processors have no limit"
        )
    if limits.threads is None:
        yield subject.ok("threads have no limit")
    elif limits.threads < needed + 1:
        yield subject.error(
            f"allows {limits.threads} threads, and the sidecar needs {needed + 1}",
            "raise the process limit of the pod (pids.max; kubelet's podPidsLimit)",
        )
    else:
        free = limits.threads - limits.threads_in_use
        yield subject.ok(f"allows {limits.threads} threads, of which {free} are free")


def read_process_limits(root: Path = Path("/")) -> ProcessLimits:
    """Read the limits of this process's control group."""
    pids = ControlGroup.of("pids", root)
    return ProcessLimits(
        memory_bytes=ProcessMemory(root).read().group_limit_bytes,
        processors=_processors(ControlGroup.of("cpu", root)),
        threads=pids.number("pids.max"),
        threads_in_use=pids.number("pids.current") or 0,
    )


def _processors(group: ControlGroup) -> float | None:
    return _processors_1(group) if group.is_version_1 else _processors_2(group)


def _processors_1(group: ControlGroup) -> float | None:
    # Without a limit the quota is -1.
    quota, period = group.number("cpu.cfs_quota_us"), group.number("cpu.cfs_period_us")
    return quota / period if quota and period else None


def _processors_2(group: ControlGroup) -> float | None:
    parts = group.text("cpu.max").split()  # "max 100000", or "50000 100000"
    is_limited = len(parts) == 2 and parts[0].isdigit()
    return int(parts[0]) / int(parts[1]) if is_limited else None
