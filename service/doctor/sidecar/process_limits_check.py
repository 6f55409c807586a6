"""What the control group lets the process have: memory, processors and threads.

Of this process's group: it is the sidecar's, if the doctor runs in the sidecar's container.
"""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from service.config.quantity import size_text
from service.doctor.finding import Finding, Subject
from service.resources.memory_reading import ControlGroup, ProcessMemory
from service.resources.thread_limit import needed_threads

MEMORY_FACTOR = 1.5  # of limits.memory: the interpreter and its libraries come besides
_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What there may be at most; None: no limit."""

    memory_bytes: int | None = None
    processors: float | None = None
    threads: int | None = None
    threads_in_use: int = 0


@dataclass(frozen=True, slots=True)
class ProcessLimitsCheck:
    """The group of this process; `root` is where /proc and /sys are."""

    memory_bytes: int | None  # what `limits.memory` says, if there is a configuration
    root: Path = Path("/")

    @property
    def matter(self) -> Subject:
        """The group."""
        return Subject("limits", "control group")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One for each limit."""
        limits = read_process_limits(self.root)
        if self.memory_bytes is not None:
            yield memory_finding(self.matter, self.memory_bytes, limits.memory_bytes)
        for finding in limit_findings(self.matter, limits, needed=needed_threads()):
            yield finding


def memory_finding(matter: Subject, wanted_bytes: int, limit_bytes: int | None) -> Finding:
    """Whether `limits.memory` fits into what there is."""
    least_bytes = _whole_mebibytes(MEMORY_FACTOR * wanted_bytes)
    wanted = f"limits.memory is {size_text(wanted_bytes)}"
    if limit_bytes is None:
        return matter.ok(f"{wanted}, and memory has no limit")
    # To the mebibyte: nobody writes limits in bytes, and the kernel rounds them to pages.
    limit = size_text(limit_bytes // _MEBIBYTE * _MEBIBYTE)
    remedy = f"give the container at least {size_text(least_bytes)}, or lower limits.memory"
    if limit_bytes < wanted_bytes:
        return matter.error(f"{wanted}, and there is {limit}: the kernel will kill it", remedy)
    if limit_bytes < least_bytes:
        text = f"{wanted}, and there is {limit}: too little for the interpreter besides"
        return matter.warning(text, remedy)
    return matter.ok(f"{wanted}, and there is {limit}")


def limit_findings(matter: Subject, limits: ProcessLimits, *, needed: int) -> Iterator[Finding]:
    """Whether processors and threads suffice, of which so many are needed."""
    if limits.processors is not None and limits.processors < 1.0:
        yield matter.warning(
            f"is held to {limits.processors:g} processors: throttling stops the event loop of all "
            "tasks of the executor",
            "give the container no CPU limit, only a request; or at least one processor",
        )
    else:
        yield matter.ok("has a processor" if limits.processors else "processors have no limit")
    free = None if limits.threads is None else limits.threads - limits.threads_in_use
    if free is None:
        yield matter.ok("threads have no limit")
    elif limits.threads is not None and limits.threads < needed + 1:
        yield matter.error(
            f"allows {limits.threads} threads, and the sidecar needs {needed + 1}",
            "raise the limit of processes of the pod (pids.max; kubelet's podPidsLimit)",
        )
    else:
        yield matter.ok(f"allows {limits.threads} threads, and {free} are free")


def read_process_limits(root: Path = Path("/")) -> ProcessLimits:
    """The limits of this process's group."""
    pids = ControlGroup.of("pids", root)
    limits = ProcessLimits(
        memory_bytes=ProcessMemory(root).read().group_limit_bytes,
        processors=_processors(ControlGroup.of("cpu", root)),
        threads=pids.number("pids.max"),
    )
    return replace(limits, threads_in_use=pids.number("pids.current") or 0)


def _processors(group: ControlGroup) -> float | None:
    if group.is_version_1:
        # Without a limit the quota is -1.
        quota, period = group.number("cpu.cfs_quota_us"), group.number("cpu.cfs_period_us")
        return quota / period if quota and period else None
    parts = group.text("cpu.max").split()  # "max 100000", or "50000 100000"
    is_limited = len(parts) == 2 and parts[0].isdigit()
    return int(parts[0]) / int(parts[1]) if is_limited else None


def _whole_mebibytes(count_bytes: float) -> int:
    return -int(-count_bytes // _MEBIBYTE) * _MEBIBYTE
