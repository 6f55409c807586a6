"""Files of a shared cache: those in use in one folder, and the fields of its lease.

Does not know what readers may do.
"""

import mmap
import os
import shutil
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lookup_core.cache.shared_layout import (
    DESCRIPTION_FILE,
    LAYOUT_VERSION,
    LEASE_BYTES,
    LEASE_FILE,
    MAP_FILE,
    LeaseField,
)
from service.resources.shared_place import FOLDER_MODE

_FILE_MODE = 0o440  # no process truncates it by mistake, which would end its readers by SIGBUS


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file, mapped into this process."""

    name: str
    content: mmap.mmap


@dataclass(slots=True)
class CacheFiles:
    """The files of one folder that are in use, and the fields of its lease."""

    mapped: "_MappedFiles"
    lease: npt.NDArray[np.uint8]
    lease_file: os.stat_result | None  # None: no reader sees the lease
    counts: npt.NDArray[np.uint64] = field(init=False)
    times: npt.NDArray[np.float64] = field(init=False)
    names: dict[int, str] = field(default_factory=dict)  # {address of an array or of rows: file}
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _has_map: bool = False

    def __post_init__(self) -> None:
        """Lay the fields over the lease."""
        self.counts, self.times = self.lease.view(np.uint64), self.lease.view(np.float64)

    @classmethod
    def created(cls, folder: Path, description: bytes) -> "CacheFiles":
        """Those of a new folder, without arrays and rows; raises OSError."""
        folder.mkdir(mode=FOLDER_MODE, parents=True)
        mapped = _MappedFiles(folder)
        try:
            lease = np.frombuffer(mapped.new(LEASE_FILE, LEASE_BYTES), np.uint8)
            files = cls(mapped, lease, (folder / LEASE_FILE).stat())
            files.counts[LeaseField.LAYOUT] = LAYOUT_VERSION
            files.counts[LeaseField.TIME_NAMESPACE] = _time_namespace()
            files.count_changes(is_whole=False)
            files.write(DESCRIPTION_FILE, description)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return files

    @classmethod
    def none(cls, folder: Path) -> "CacheFiles":
        """No files, and fields that no reader sees."""
        return cls(_MappedFiles(folder / "none"), np.zeros(LEASE_BYTES, np.uint8), None)

    @property
    def are_there(self) -> bool:
        """Whether readers find all of them."""
        wanted = {DESCRIPTION_FILE, *self.names.values(), *([MAP_FILE] if self._has_map else [])}
        folder, own = self.mapped.folder, self.lease_file
        try:
            is_own = own is not None and os.path.samestat((folder / LEASE_FILE).stat(), own)
        except OSError:
            return False
        # A list of the folder would need a free file descriptor.
        return is_own and all((folder / name).exists() for name in wanted)

    def allocate(self, kind: str, size: int) -> CacheFile:
        """A file of zeros; raises OSError."""
        name = f"{kind}-{next(self._numbers)}"
        return CacheFile(name, self.mapped.new(name, size))

    def name(self, address: int, file: CacheFile) -> None:
        """The array or the rows at this address are in this file."""
        self.names[address] = file.name
        weakref.finalize(file.content, self.names.pop, address)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file as a whole; raises OSError."""
        path = self.mapped.folder / f"{name}.new"
        path.unlink(missing_ok=True)  # left by a write that failed
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        path.replace(self.mapped.folder / name)
        self._has_map |= name == MAP_FILE

    def count_changes(self, *, is_whole: bool) -> None:
        """Make the count even if the table is whole, else odd."""
        is_even = self.counts.item(LeaseField.CHANGES) % 2 == 0
        if is_even is not is_whole:
            self.counts[LeaseField.CHANGES] += np.uint64(1)


@dataclass(slots=True)
class _MappedFiles:
    """The files of a folder that this process has mapped, and their size."""

    folder: Path
    bytes: int = 0

    def new(self, name: str, size: int) -> mmap.mmap:
        """Map a new file of zeros; raises OSError."""
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
        self.bytes += size
        # Not a method of `CacheFiles`, which would live as long as its first file, and keep that.
        weakref.finalize(memory, self._forget, name, size)
        return memory

    def _forget(self, name: str, size: int) -> None:
        self.bytes -= size
        with suppress(OSError):  # it may be gone, with its folder
            (self.folder / name).unlink()


def _time_namespace() -> int:
    """Its inode; 0 without one, as on older kernels."""
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0
