"""Shared memory of one cache: arrays and rows in files that the workers of the machine map.

`lookup_core.cache.shared_layout` describes the folder.
"""

import asyncio
import errno
import fcntl
import math
import mmap
import os
import shutil
import stat
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from lookup_core.cache.cache_view import CacheView
from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.shared_layout import (
    DESCRIPTION_FILE,
    LAYOUT_VERSION,
    LEASE_BYTES,
    LEASE_FILE,
    LEASE_S,
    MAP_FILE,
    ArrayFiles,
    CacheMap,
    LeaseField,
    LockFence,
    SegmentFile,
)

log = structlog.get_logger()

Number = TypeVar("Number", bound=np.generic)

_FOLDER = "cache"  # next to the Unix socket
_FOLDER_MODE = 0o750
_FILE_MODE = 0o440  # no process truncates it by mistake, which would end its readers by SIGBUS
_LOCK_FILE = "lock"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder below it has mode 0750
_EXTENSION_S = 0.15


class SharedCaches:
    """The shared caches of this process, in a folder of its own below `parent`.

    A process that ends without cleaning up leaves its folder, which the next one removes.
    """

    def __init__(self, parent: Path | None, *, why_private: str = "listen.unix is null") -> None:
        """Without `parent`, nothing is shared, for this reason."""
        self._parent = parent
        self.why_private = why_private
        self.base: Path | None = None  # the folder of the socket, which clients may see elsewhere
        self._numbers = count(1)
        self._caches: list[SharedMemory] = []
        self._is_draining = False
        self._folder: Path | None = None  # since the first cache
        self._lock: int | None = None

    @classmethod
    def beside(cls, socket: Path | None) -> "SharedCaches":
        """Those of a sidecar with this Unix socket, at `shared_place`."""
        if socket is None:  # no reader is on this machine, as far as is known
            return cls(None)
        place = shared_place(socket)
        if isinstance(place, str):
            log.warning("cache.not_shared", reason=place)
            caches = cls(None, why_private=place)
        else:
            caches = cls(place.folder)
        caches.base = socket.parent
        return caches

    def offered(self, cache: "SharedMemory") -> str:
        """The folder of a cache for clients: relative to that of the socket, if it is within."""
        if self.base is None or not cache.folder.is_relative_to(self.base):
            return str(cache.folder)
        return str(cache.folder.relative_to(self.base))

    def new(self, dimension: str, description: CacheDescription) -> "SharedMemory | None":
        """The cache of a dimension; None, with a log line, if it cannot be shared."""
        if self._parent is None:
            return None
        try:
            folder = self._own_folder() / str(next(self._numbers))
            cache = SharedMemory(dimension, folder, description)
        except OSError as error:
            self.why_private = _reason(error, self._parent)
            log.warning("cache.not_shared", dimension=dimension, reason=self.why_private)
            return None
        self._caches.append(cache)
        return cache

    def remove(self, cache: "SharedMemory") -> None:
        """End the use of a cache; again without effect."""
        if cache in self._caches:
            self._caches.remove(cache)
            cache.close()

    async def run(self) -> None:
        """Extend the leases, until cancelled; then no reader uses the caches."""
        try:
            while True:
                for cache in self._caches:
                    if not self._is_draining:
                        cache.extend_lease()
                await asyncio.sleep(_EXTENSION_S)
        finally:
            for cache in [*self._caches]:
                self.remove(cache)
            if self._folder is not None and self._lock is not None:
                _remove(self._folder)
                os.close(self._lock)

    def drain(self) -> None:
        """Let no reader begin to use a cache any more."""
        self._is_draining = True
        for cache in self._caches:
            cache.end_lease()

    def _own_folder(self) -> Path:
        assert self._parent is not None  # checked by the caller
        if self._folder is None:
            self._parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            _check_owner(self._parent)
            for each in self._parent.iterdir():
                _remove_if_stale(each)
            # No chmod afterwards: a folder of a volume in a pod passes its group on.
            folder = self._parent / token_hex(8)
            folder.mkdir(mode=_FOLDER_MODE)
            lock = os.open(folder / _LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock).st_nlink:  # a process that starts now took it for a stale one
                os.close(lock)
                return self._own_folder()
            self._folder, self._lock = folder, lock
        return self._folder


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """The folder of the shared caches of a sidecar, and its file system."""

    folder: Path
    mount: Path
    bytes: int  # of the file system; 0: no bound


def shared_place(socket: Path) -> SharedPlace | str:
    """Where a sidecar with this Unix socket shares: in its folder, or in /dev/shm; or why nowhere.

    Only a file system in memory is used, because pages of others are written to a disk.
    """
    candidates = (socket.parent / _FOLDER, SHARED_MEMORY / f"sidelook-{os.getuid()}")
    for each in candidates:
        mount = _tmpfs(each.parent)
        if mount is not None:
            return SharedPlace(each, mount, _size(mount))
    parents = " nor ".join(str(each.parent) for each in candidates)
    return f"neither {parents} is a tmpfs; mount one at {socket.parent}"


def _size(mount: Path) -> int:
    status = os.statvfs(mount)
    return status.f_blocks * status.f_frsize


def _reason(error: OSError, folder: Path) -> str:
    """Why nothing is shared in this folder, and the remedy."""
    if error.errno == errno.ENOSPC:
        mount = _tmpfs(folder) or folder
        what = f"the tmpfs {mount} ({_size(mount) / 2**20:g} MiB) is full"
        return f"{what}; raise its size (in a pod, sizeLimit of its volume); restart the sidecar"
    if error.errno == errno.EPERM:
        return f"{folder}: {error.strerror}; remove it, and restart the sidecar"
    what = f"{folder} cannot be written: {error.strerror}"
    return f"{what}; make it writable for the sidecar, and restart it"


def _tmpfs(folder: Path) -> Path | None:
    """Where the tmpfs of an existing folder is mounted; None if another file system has it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:  # a chroot without /proc
        return None
    within = [
        (len(path), path, kind)
        for _, path, kind, *_ in mounts
        if folder.resolve().is_relative_to(path)
    ]
    _, path, kind = max(within, default=(0, "", ""))
    return Path(path) if folder.is_dir() and kind == "tmpfs" else None


def _check_owner(folder: Path) -> None:
    """Raise OSError if another user could put files there, which workers would read."""
    status = folder.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "another user owns it, or may write to it")


def _remove_if_stale(folder: Path) -> None:
    """Remove the folder of a process that has ended; another one holds its lock."""
    try:
        lock = os.open(folder / _LOCK_FILE, os.O_RDWR)
    except OSError:  # it is being made or removed, or is none of ours
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove the folder of a process; its lock last, so that the next process can go on.

    Another process, such as a cleaner of temporary files, may have removed some of it before.
    """
    with suppress(OSError):
        for each in folder.iterdir():
            if each.name != _LOCK_FILE:
                shutil.rmtree(each, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


class SharedMemory:
    """A `CacheMemory` in the files of one folder, which it creates.

    A file stays as long as its array or rows are used here; readers that have mapped it keep it
    longer. If the file system is full, sharing ends for good: what is allocated later is private,
    and readers use the stream.
    """

    is_shared = True

    def __init__(
        self,
        dimension: str,
        folder: Path,
        description: CacheDescription,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises OSError if the folder exists, or cannot be created."""
        folder.mkdir(mode=_FOLDER_MODE, parents=True)
        self.folder = folder
        self._dimension = dimension
        self._files = _Files(folder)
        self.why_private: str | None = None  # while it is shared
        self._allowed_until = math.inf
        self._clock = clock
        self._numbers = count(1)
        self.fence = LockFence(threading.Lock())
        self._names: dict[int, str] = {}  # {address of an array or of rows: file}
        lease = self._map(LEASE_FILE, LEASE_BYTES)
        self._counts = np.frombuffer(lease, np.uint64)
        self._times = np.frombuffer(lease, np.float64)
        self._counts[LeaseField.LAYOUT] = LAYOUT_VERSION
        self._count_changes(is_whole=False)
        self._write_file(DESCRIPTION_FILE, description.encoded())

    @property
    def file_bytes(self) -> int:
        """The size of all files; 0 once nothing is shared any more."""
        return self._files.bytes if self.why_private is None else 0

    def zeros(self, count: int, kind: type[Number]) -> npt.NDArray[Number]:
        """See `CacheMemory`."""
        memory = self._allocate("numbers", count * np.dtype(kind).itemsize)
        if memory is None:
            return np.zeros(count, kind)
        array = np.frombuffer(memory.content, kind, count)
        self._name(array.ctypes.data, memory)
        return array

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        if _address(rows) in self._names:  # moved from another table
            return rows
        measured = pa.MockOutputStream()
        _write(rows, measured)
        memory = self._allocate("rows", measured.size())
        if memory is None:
            return rows
        buffer = pa.py_buffer(memory.content)
        _write(rows, pa.FixedSizeBufferWriter(buffer))
        stored = pa.ipc.open_stream(buffer).read_next_batch()
        self._name(_address(stored), memory)
        return stored

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`."""
        if self.why_private is not None:
            return
        arrays = (view.keys.places, view.keys.hashes, view.states.words, view.rows.addresses)
        names = [self._names[array.ctypes.data] for array in arrays]
        segments = [
            SegmentFile(self._names[_address(rows)], start, is_negative)
            for rows, start, is_negative in zip(
                view.rows.segments, view.rows.starts.tolist(), view.rows.is_negative, strict=True
            )
        ]
        files = CacheMap(ArrayFiles(*names), view.states.tick_s, view.states.first_tick, segments)
        self.fence()  # readers of the map see the arrays as they are now
        try:
            self._write_file(MAP_FILE, files.encoded())
        except OSError as error:
            self._end(error)
            return
        self._counts[LeaseField.MAP] += np.uint64(1)

    def allow_reads(self, *, until: float) -> None:
        """See `CacheMemory`."""
        self._allowed_until = until
        if until <= self._clock():
            self.end_lease()

    def begin_change(self) -> None:
        """See `CacheMemory`."""
        self._count_changes(is_whole=False)
        self.fence()

    def end_change(self, *, is_whole: bool) -> None:
        """See `CacheMemory`."""
        self.fence()
        self._count_changes(is_whole=is_whole)

    def confirm(self, fresh_at: float) -> None:
        """See `CacheMemory`."""
        self._times[LeaseField.FRESH_AT] = fresh_at

    def _count_changes(self, *, is_whole: bool) -> None:
        changes = self._counts.item(LeaseField.CHANGES)
        self._counts[LeaseField.CHANGES] = changes + (changes % 2 == is_whole)

    def extend_lease(self) -> None:
        """Let readers use the cache for the next 0.6 s, as far as they may."""
        if self.why_private is None:
            until = min(self._clock() + LEASE_S, self._allowed_until)
            self._times[LeaseField.VALID_UNTIL] = until

    def end_lease(self) -> None:
        """Let no reader begin to use the cache, until the lease is extended."""
        self._times[LeaseField.VALID_UNTIL] = 0.0

    def _allocate(self, kind: str, size: int) -> "_File | None":
        if self.why_private is not None:
            return None
        name = f"{kind}-{next(self._numbers)}"
        try:
            return _File(name, self._map(name, max(size, 1)))
        except OSError as error:
            self._end(error)
            return None

    def _map(self, name: str, size: int) -> mmap.mmap:
        path = self.folder / name
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _FILE_MODE)
        try:
            os.posix_fallocate(file, 0, size)  # a full file system is an error now, not a signal
            memory = mmap.mmap(file, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        self._files.bytes += size
        # Not a method of this object, which would live as long as its first file, and keep that.
        weakref.finalize(memory, self._files.forget, name, size)
        return memory

    def _name(self, address: int, file: "_File") -> None:
        self._names[address] = file.name
        weakref.finalize(file.content, self._names.pop, address)

    def close(self) -> None:
        """Let no reader use the cache any more, and remove its files."""
        self.why_private = "the sidecar ends, or its table has changed"
        self.end_lease()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_file(self, name: str, content: bytes) -> None:
        """Replace a file as a whole."""
        path = self.folder / f"{name}.new"
        path.unlink(missing_ok=True)  # left by a write that failed
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        path.replace(self.folder / name)

    def _end(self, error: OSError) -> None:
        self.why_private = _reason(error, self.folder)
        self.end_lease()
        log.warning("cache.sharing_ended", dimension=self._dimension, reason=self.why_private)


@dataclass(slots=True)
class _Files:
    """The files of a folder that are in use."""

    folder: Path
    bytes: int = 0

    def forget(self, name: str, size: int) -> None:
        self.bytes -= size
        with suppress(OSError):  # it may be gone, with its folder
            (self.folder / name).unlink()


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    content: mmap.mmap


def _address(rows: pa.RecordBatch) -> int:
    """That of the hashes, which tells segments in use apart."""
    _, hashes = rows.column(0).buffers()
    return int(hashes.address)


def _write(rows: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
