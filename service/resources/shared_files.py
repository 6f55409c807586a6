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

    folder: Path
    usage: "_Usage"
    names: dict[int, str] = field(default_factory=dict)  # {address of an array or of rows: file}
    counts: npt.NDArray[np.uint64] = field(init=False)
    times: npt.NDArray[np.float64] = field(init=False)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _has_map: bool = False
    _lease: os.stat_result = field(init=False)

    @classmethod
    def created(cls, folder: Path, description: bytes) -> "CacheFiles":
        """Those of a new folder, without arrays and rows; raises OSError."""
        folder.mkdir(mode=FOLDER_MODE, parents=True)
        files = cls(folder, _Usage(folder))
        try:
            lease = files._map(LEASE_FILE, LEASE_BYTES)
            files._lease = (folder / LEASE_FILE).stat()
            files.counts = np.frombuffer(lease, np.uint64)
            files.times = np.frombuffer(lease, np.float64)
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
        files, lease = cls(folder / "none", _Usage(folder)), np.zeros(LEASE_BYTES, np.uint8)
        files.counts, files.times = lease.view(np.uint64), lease.view(np.float64)
        return files

    @property
    def are_there(self) -> bool:
        """Whether readers find all of them."""
        wanted = {DESCRIPTION_FILE, *self.names.values(), *([MAP_FILE] if self._has_map else [])}
        try:
            is_own = os.path.samestat((self.folder / LEASE_FILE).stat(), self._lease)
        except OSError:
            return False
        # A list of the folder would need a free file descriptor.
        return is_own and all((self.folder / name).exists() for name in wanted)

    def allocate(self, kind: str, size: int) -> CacheFile:
        """A file of zeros; raises OSError."""
        name = f"{kind}-{next(self._numbers)}"
        return CacheFile(name, self._map(name, size))

    def name(self, address: int, file: CacheFile) -> None:
        """The array or the rows at this address are in this file."""
        self.names[address] = file.name
        weakref.finalize(file.content, self.names.pop, address)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file as a whole; raises OSError."""
        path = self.folder / f"{name}.new"
        path.unlink(missing_ok=True)  # left by a write that failed
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        path.replace(self.folder / name)
        self._has_map |= name == MAP_FILE

    def count_changes(self, *, is_whole: bool) -> None:
        """Make the count even if the table is whole, else odd."""
        changes = self.counts.item(LeaseField.CHANGES)
        self.counts[LeaseField.CHANGES] = changes + (changes % 2 == is_whole)

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
        self.usage.bytes += size
        # Not a method of this object, which would live as long as its first file, and keep that.
        weakref.finalize(memory, self.usage.forget, name, size)
        return memory


@dataclass(slots=True)
class _Usage:
    """The size of the files of a folder that are in use."""

    folder: Path
    bytes: int = 0

    def forget(self, name: str, size: int) -> None:
        """A file is not used any more."""
        self.bytes -= size
        with suppress(OSError):  # it may be gone, with its folder
            (self.folder / name).unlink()


def _time_namespace() -> int:
    """Its inode; 0 without one, as on older kernels."""
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0
