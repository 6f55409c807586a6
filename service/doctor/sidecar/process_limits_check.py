"""Process limits check: memory and processors of this process's control group.

These are the sidecar's limits only if the doctor runs in the sidecar's container.
"""

from collections.abc import Iterator
from pathlib import Path

from service.config.quantity import size_text
from service.doctor.finding import Finding, Subject
from service.resources.memory_reading import ControlGroup, ProcessMemory

LIMITS_MEMORY_FACTOR = 1.5  # the rest is for the interpreter and its libraries
_MEBIBYTE = 2**20


def check_process_limits(
    subject: Subject, memory_bytes: int | None, root: Path = Path("/")
) -> Iterator[Finding]:
    """Yield a finding for each limit.

    `memory_bytes` is limits.memory, None without a configuration; `root` contains /proc and /sys.
    """
    if memory_bytes is not None:
        yield memory_finding(subject, memory_bytes, ProcessMemory(root).read().group_limit_bytes)
    yield processors_finding(subject, ControlGroup.of("cpu", root).processors)


def memory_finding(subject: Subject, wanted_bytes: int, limit_bytes: int | None) -> Finding:
    """Return whether `limits.memory` fits into the memory limit of the container."""
    least_bytes = -int(-LIMITS_MEMORY_FACTOR * wanted_bytes // _MEBIBYTE) * _MEBIBYTE
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


def processors_finding(subject: Subject, processors: float | None) -> Finding:
    """Return whether the container has a whole processor."""
    if processors is None:
        return subject.ok("processors have no limit")
    if processors >= 1.0:
        return subject.ok("has at least one processor")
    return subject.warning(
        f"is limited to {processors:g} processors: throttling stops the event loop for all tasks "
        "of the executor",
        "give the container a CPU request without a limit, or at least one processor",
    )
