"""Sharing check: whether workers can read the caches of a sidecar in shared memory.

Read-only: it reads the lease of each cache, as a worker does.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookup_core.cache.shared_layout import LEASE_FILE
from service.config.quantity import size_text
from service.doctor.finding import Finding, Subject
from service.doctor.sidecar.socket_check import own_ids
from service.resources.shared_place import SharedPlace, shared_place

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class CacheReading:
    """An attempt to read a shared cache."""

    folder: Path
    errno: int | None = None  # why this process cannot read it
    group: int = 0  # owns its folder, or the folder above that this process sees
    me: tuple[int, tuple[int, ...]] = (0, (0,))  # uid and gids of this process


def check_shared_memory(
    subject: Subject, socket: Path, needed_bytes: int, *, is_sidecar_checked: bool
) -> Iterator[Finding]:
    """Yield whether the shared caches of a configuration have a tmpfs, and fit into it.

    A running sidecar tells itself that there is none, which is a finding of its own.
    """
    if not socket.parent.is_dir():
        yield subject.skipped(
            "the folder does not exist here: its tmpfs was not checked",
            "run the doctor where the sidecar runs",
        )
        return
    place = shared_place(socket)
    if isinstance(place, SharedPlace):
        yield place_finding(subject, place, needed_bytes)
    elif not is_sidecar_checked:
        why, _, remedy = place.partition("; ")
        yield subject.warning(f"caches will not be shared: {why}", remedy)


def place_finding(subject: Subject, place: SharedPlace, needed_bytes: int) -> Finding:
    """Return whether the file system can hold the shared caches."""
    needed = size_text(-(-needed_bytes // _MEBIBYTE) * _MEBIBYTE)
    if 0 < place.bytes < needed_bytes:
        return subject.warning(
            f"the tmpfs {place.mount} has {size_text(place.bytes // _MEBIBYTE * _MEBIBYTE)}, and "
            f"the files of shared caches need up to {needed}: once it is full, sharing ends",
            f"raise its size to {needed} (in a pod, sizeLimit of its volume), or lower "
            "cache.max_bytes",
        )
    return subject.ok(f"the tmpfs {place.mount} can hold the shared caches, up to {needed}")


def read_cache(folder: Path) -> CacheReading:
    """Read the lease of a cache; an error is a part of the result."""
    number = None
    try:
        (folder / LEASE_FILE).read_bytes()
    except OSError as error:
        number = error.errno
    return CacheReading(folder, number, _group(folder), own_ids())


def _group(folder: Path) -> int:
    for each in (folder, *folder.parents):
        try:
            return each.stat().st_gid
        except OSError:  # it is missing, or in a folder that this process cannot search
            continue
    return 0


def sharing_finding(
    subject: Subject, shared: Mapping[str, Any], reading: CacheReading | None
) -> Finding:
    """Return whether a cache is shared, and readable; `shared` is its part of the status.

    `reading` is None if the sidecar may be on another machine.
    """
    if shared["why_private"] is not None:
        why, _, remedy = shared["why_private"].partition("; ")
        text = f"its cache is not shared, so each lookup is a message: {why}"
        return subject.warning(text, remedy) if remedy else subject.ok(text)
    if reading is None:
        return subject.ok("its cache is shared with workers on its machine")
    text = f"its cache is shared in {reading.folder}"
    if reading.errno is None:
        keys = f"workers have looked up {shared['keys']:,} keys in it"
        return subject.ok(f"{text}, which this process may read; {keys}")
    if reading.errno == errno.ENOENT:
        return subject.warning(
            f"{text}, which does not exist here: workers here look up by messages",
            "mount the folder of the sidecar here, at the path of the socket; /dev/shm of a "
            "container is its own",
        )
    uid, gids = reading.me
    return subject.warning(
        f"{text}, which uid {uid}, gids {', '.join(map(str, gids))} cannot read: "
        f"{os.strerror(reading.errno)}; its lookups are messages",
        f"run both containers in group {reading.group} (runAsGroup, fsGroup)",
    )
