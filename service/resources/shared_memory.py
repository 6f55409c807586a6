"""Shared memory of one cache: arrays and rows in files that the workers of the machine map.

`lookup_core.cache.shared_layout` describes the folder.
"""

import asyncio
import errno
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from lookup_core.cache.cache_view import CacheView
from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.dimension_cache import DimensionCache
from lookup_core.cache.shared_layout import (
    LEASE_S,
    MAP_FILE,
    ArrayFiles,
    ArrayLengths,
    CacheMap,
    LeaseField,
    LockFence,
    SegmentFile,
)
from service.resources.shared_files import CacheFile, CacheFiles
from service.resources.shared_place import (
    ProcessFolder,
    free_bytes,
    reason_of,
    shared_place,
)

log = structlog.get_logger()

Number = TypeVar("Number", bound=np.generic)

_EXTENSION_S = LEASE_S / 4
_CHECK_S = 0.5  # between two looks at the files, and between two attempts to share again
_MOVING_ROWS_S = 0.02  # then lookups run again
_SPARE_BYTES = 2**20  # free in the file system, before sharing begins again
# Seconds, in which the machine may be suspended: then rows age, and leases end.
boot_time: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
_CLOSED = "the sidecar ends, or its table has changed"


class SharedCaches:
    """The shared caches of this process, in a folder of its own below `parent`.

    A process that ends without cleaning up leaves its folder, which the next one removes.
    """

    def __init__(
        self,
        parent: Path | None,
        *,
        socket: Path | None = None,
        why_private: str = "listen.unix is null",
    ) -> None:
        """`socket` is that of the sidecar; without `parent`, nothing is shared for `why_private`.

        Clients may see the folder of the socket elsewhere.
        """
        self._parent = parent
        self._socket = socket
        self.why_private = why_private
        self._numbers = count(1)
        self._caches: dict[SharedMemory, DimensionCache] = {}
        self._is_draining = False
        self._folder: ProcessFolder | None = None  # since the first cache

    @classmethod
    def for_socket(cls, socket: Path | None) -> "SharedCaches":
        """Those of a sidecar with this Unix socket, at `shared_place`."""
        if socket is None:  # no reader is on this machine, as far as is known
            return cls(None)
        place = shared_place(socket)
        if not isinstance(place, str):
            return cls(place.folder, socket=socket)
        log.warning("cache.not_shared", reason=place)
        return cls(None, socket=socket, why_private=place)

    def offered(self, cache: "SharedMemory") -> str:
        """The folder of a cache for clients: relative to that of the socket, if it is within."""
        if self._socket is None or not cache.folder.is_relative_to(self._socket.parent):
            return str(cache.folder)
        return str(cache.folder.relative_to(self._socket.parent))

    def new(self, dimension: str, description: CacheDescription) -> "SharedMemory | None":
        """Memory for the cache of a dimension, to be added once it is used; None without sharing.

        If it cannot be shared yet, it is private, with a log line.
        """
        if self._parent is None:
            return None
        try:
            cache = SharedMemory(dimension, self._new_path(), description)
        except OSError as error:
            cache = SharedMemory(dimension, self._parent, description, fault=error)
            log.warning("cache.not_shared", dimension=dimension, reason=cache.why_private)
        return cache

    def add(self, cache: "SharedMemory", owner: DimensionCache) -> None:
        """Let readers use the memory of this owner; share it again whenever its sharing ends."""
        self._caches[cache] = owner

    def remove(self, cache: "SharedMemory") -> None:
        """End the use of a cache; again without effect."""
        if cache in self._caches:
            del self._caches[cache]
            cache.close()

    async def run(self) -> None:
        """Extend the leases, until cancelled; then no reader uses the caches."""
        check_at = 0.0
        try:
            while True:
                if not self._is_draining:
                    is_due = time.monotonic() >= check_at
                    check_at = time.monotonic() + _CHECK_S if is_due else check_at
                    for cache, owner in self._caches.items():
                        self._keep(cache, owner, is_due=is_due)
                await asyncio.sleep(_EXTENSION_S)
        finally:
            for cache in [*self._caches]:
                self.remove(cache)
            if self._folder is not None:
                self._folder.remove()

    def drain(self) -> None:
        """Let no reader begin to use a cache any more."""
        self._is_draining = True
        for cache in self._caches:
            cache.end_lease()

    def _keep(self, cache: "SharedMemory", owner: DimensionCache, *, is_due: bool) -> None:
        if is_due:
            cache.check()
        if is_due and not (cache.is_moving or cache.is_shared_now):
            self._restart(cache, owner)
        if cache.is_moving:
            _move(cache, owner)
        cache.extend_lease()

    def _restart(self, cache: "SharedMemory", owner: DimensionCache) -> None:
        try:
            path = self._new_path()
            needed_bytes = max(owner.bytes - cache.mapped_bytes, 0) + _SPARE_BYTES
            if free_bytes(path.parent) >= needed_bytes:
                cache.restart(path)
                owner.begin_move()
        except OSError as error:
            cache.end(error)

    def _new_path(self) -> Path:
        """The path of one more cache; raises OSError."""
        if self._folder is not None and not self._folder.is_there:
            self._folder.remove()
            self._folder = None
        if self._folder is None:
            self._folder = ProcessFolder(self._present_parent())
        return self._folder.path / str(next(self._numbers))

    def _present_parent(self) -> Path:
        """The folder of the processes, as the tmpfs may have been unmounted; raises OSError."""
        if self._socket is None:
            found = self._parent or self.why_private
        else:
            place = shared_place(self._socket)
            found = place if isinstance(place, str) else place.folder
        if isinstance(found, str):  # pages of another file system are written to a disk
            raise OSError(errno.ENODEV, found)
        return found


def _move(cache: "SharedMemory", owner: DimensionCache) -> None:
    """Move rows for some milliseconds; sharing may end meanwhile."""
    until = time.monotonic() + _MOVING_ROWS_S
    while cache.is_moving and owner.move_next():
        if time.monotonic() >= until:
            return
    if cache.is_moving:
        cache.end_move()
        owner.end_move()


class SharedMemory:
    """A `CacheMemory` in the files of one folder, which it creates.

    A file stays as long as its array or rows are used here; readers that have mapped it keep it
    longer. If the file system is full, or files are removed, sharing ends: what is allocated later
    is private, and readers use the stream. `restart` begins it again, in another folder.
    """

    is_shared = True

    def __init__(
        self,
        dimension: str,
        folder: Path,
        description: CacheDescription,
        *,
        clock: Callable[[], float] = boot_time,
        fault: OSError | None = None,
    ) -> None:
        """Raises OSError if the folder exists, or cannot be created.

        With a fault, it is private at first: sharing has ended before it began.
        """
        self._dimension = dimension
        self._description = description.encoded()
        self._files = CacheFiles.none(folder)
        self.why_private: str | None = None  # while it is shared
        if fault is None:
            self._files = CacheFiles.created(folder, self._description)
        else:
            self.why_private = reason_of(fault, folder)
        self.is_moving = False  # it allocates, and readers do not use it yet
        self._allowed_until = math.inf
        self._clock = clock
        self.fence = LockFence(threading.Lock())

    @property
    def folder(self) -> Path:
        """Its present folder."""
        return self._files.mapped.folder

    @property
    def is_shared_now(self) -> bool:
        """Whether readers may use it, given a lease."""
        return self.why_private is None

    @property
    def file_bytes(self) -> int:
        """The size of all files; 0 once nothing is shared any more."""
        return self._files.mapped.bytes if self.why_private is None else 0

    @property
    def mapped_bytes(self) -> int:
        """The size of all files that are in use here, also if they are not shared."""
        return self._files.mapped.bytes

    def zeros(self, count: int, kind: type[Number]) -> npt.NDArray[Number]:
        """See `CacheMemory`."""
        memory = self._allocate("numbers", count * np.dtype(kind).itemsize)
        if memory is None:
            return np.zeros(count, kind)
        array = np.frombuffer(memory.content, kind, count)
        self._files.name(array.ctypes.data, memory)
        return array

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        if _address(rows) in self._files.names:  # moved from another table
            return rows
        measured = pa.MockOutputStream()
        _write(rows, measured)
        memory = self._allocate("rows", measured.size())
        if memory is None:
            return rows
        buffer = pa.py_buffer(memory.content)
        _write(rows, pa.FixedSizeBufferWriter(buffer))
        stored = pa.ipc.open_stream(buffer).read_next_batch()
        self._files.name(_address(stored), memory)
        return stored

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`."""
        if self.why_private is not None:
            return
        names = self._files.names
        arrays = (view.keys.places, view.keys.hashes, view.states.words, view.rows.addresses)
        segments = [
            SegmentFile(names[_address(rows)], start, is_negative)
            for rows, start, is_negative in zip(
                view.rows.segments, view.rows.starts.tolist(), view.rows.is_negative, strict=True
            )
        ]
        of_arrays = ArrayFiles(*(names[array.ctypes.data] for array in arrays))
        files = CacheMap(
            arrays=of_arrays,
            tick_s=view.states.tick_s,
            first_tick=view.states.first_tick,
            segments=segments,
            lengths=ArrayLengths(len(view.keys.places), len(view.keys.hashes)),
        )
        self.fence()  # readers of the map see the arrays as they are now
        try:
            self._files.write(MAP_FILE, files.encoded())
        except OSError as error:
            self.end(error)
            return
        self._files.counts[LeaseField.MAP] += np.uint64(1)

    def allow_reads(self, *, until: float) -> None:
        """See `CacheMemory`."""
        self._allowed_until = until
        if until <= self._clock():
            self.end_lease()

    def begin_change(self) -> None:
        """See `CacheMemory`."""
        self._files.count_changes(is_whole=False)
        self.fence()

    def end_change(self, *, is_whole: bool) -> None:
        """See `CacheMemory`."""
        self.fence()
        self._files.count_changes(is_whole=is_whole)

    def confirm(self, fresh_at: float) -> None:
        """See `CacheMemory`."""
        self._files.times[LeaseField.FRESH_AT] = fresh_at

    def extend_lease(self) -> None:
        """Let readers use the cache for the next 0.6 s, as far as they may."""
        if self.why_private is None:
            until = min(self._clock() + LEASE_S, self._allowed_until)
            self._files.times[LeaseField.VALID_UNTIL] = until

    def end_lease(self) -> None:
        """Let no reader begin to use the cache, until the lease is extended."""
        self._files.times[LeaseField.VALID_UNTIL] = 0.0

    def check(self) -> None:
        """End sharing if files of the folder are gone, or another folder has its place."""
        if (self.why_private is None or self.is_moving) and not self._files.are_there:
            self.end(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def restart(self, folder: Path) -> None:
        """Allocate in another folder, from now on; readers follow after `end_move`.

        Raises OSError.
        """
        former, self._files = self._files, CacheFiles.created(folder, self._description)
        shutil.rmtree(former.mapped.folder, ignore_errors=True)  # what is in use stays mapped
        self.is_moving = True

    def end_move(self) -> None:
        """Share again: everything that is in use is in the folder."""
        self.is_moving, self.why_private = False, None
        log.info("cache.shared_again", dimension=self._dimension)

    def end(self, error: OSError) -> None:
        """Share nothing until `restart`; a new reason is logged."""
        reason = reason_of(error, self.folder)
        is_new = reason != self.why_private
        self.why_private, self.is_moving = reason, False
        self.end_lease()
        if is_new:
            log.warning("cache.sharing_ended", dimension=self._dimension, reason=reason)

    def close(self) -> None:
        """Let no reader use the cache any more, and remove its files."""
        self.why_private, self.is_moving = _CLOSED, False
        self.end_lease()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _allocate(self, kind: str, size: int) -> CacheFile | None:
        if self.why_private is not None and not self.is_moving:
            return None
        try:
            return self._files.allocate(kind, max(size, 1))
        except OSError as error:
            self.end(error)
            return None


def _address(rows: pa.RecordBatch) -> int:
    """That of the hashes, which tells segments in use apart."""
    _, hashes = rows.column(0).buffers()
    return int(hashes.address)


def _write(rows: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
