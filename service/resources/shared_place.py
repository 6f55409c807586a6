"""Place of shared caches: the tmpfs, the folders of processes in it, and why there is none."""

import errno
import fcntl
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

_FOLDER = "cache"  # next to the Unix socket
FOLDER_MODE = 0o750
_LOCK_FILE = "lock"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder below it has mode 0750
_AGAIN = "sharing begins again by itself"
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_REASONS = {  # {errno: what is missing, and the remedy}
    errno.EDQUOT: ("the quota of the user is used up", "raise it"),
    errno.EFBIG: ("the process may write no file of this size", "raise it (ulimit -f)"),
    errno.EMFILE: ("the process has too many open files", "raise the limit of open files"),
    errno.ENFILE: ("the machine has too many open files", "raise fs.file-max"),
    errno.ENOMEM: (
        "the process may map no more memory or files",
        "raise vm.max_map_count, or the limit (ulimit -v)",
    ),
    errno.ENODEV: ("its file system is no tmpfs any more", "mount one there"),
    errno.ENOENT: ("files or folders are missing", "make its folder; let no cleaner remove it"),
    errno.EROFS: ("its file system is read-only", "mount it writable"),
}


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """The folder of the shared caches of a sidecar, and its file system."""

    folder: Path
    mount: Path
    bytes: int  # size of the file system; 0: no bound


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


def reason_of(error: OSError, folder: Path) -> str:
    """Why nothing is shared in this folder, which may be gone, and the remedy. Never raises."""
    if error.errno == errno.ENOSPC:
        with suppress(OSError):  # the folder may have gone just now
            return f"{_fullness(folder)}: {_AGAIN}"
    if error.errno == errno.EPERM:
        return f"{folder}: {error.strerror}; remove it: {_AGAIN}"
    if error.errno in _REASONS:
        what, remedy = _REASONS[error.errno]
        return f"{folder}: {what}; {remedy}: {_AGAIN}"
    present = next(each for each in (folder, *folder.parents) if each.exists())
    what = f"{present} cannot be written: {error.strerror}"
    return f"{what}; make it writable for the sidecar: {_AGAIN}"


def _tmpfs(folder: Path) -> Path | None:
    """Where the tmpfs of an existing folder is mounted; None if another file system has it."""
    try:
        lines = Path("/proc/self/mounts").read_bytes().splitlines()
    except OSError:  # a chroot without /proc
        return None
    mounts = [(mount_point(path), kind) for _, path, kind, *_ in map(bytes.split, lines)]
    # The deepest one; a later one at the same place hides the earlier.
    within = [
        (len(path.parts), number, path, kind)
        for number, (path, kind) in enumerate(mounts)
        if folder.resolve().is_relative_to(path)
    ]
    _, _, path, kind = max(within, default=(0, 0, Path(), b""))
    return path if folder.is_dir() and kind == b"tmpfs" else None


def _fullness(folder: Path) -> str:
    """What a full tmpfs lacks, and the remedy; raises OSError."""
    present = next(each for each in (folder, *folder.parents) if each.is_dir())
    mount = _tmpfs(present) or present
    status = os.statvfs(mount)
    if status.f_files and not status.f_favail:
        what = f"the tmpfs {mount} has {status.f_files} files, all that it may have"
        return f"{what}; remove some, or raise its nr_inodes"
    what = f"the tmpfs {mount} ({_size(mount) / 2**20:g} MiB) is full"
    return f"{what}; raise its size (in a pod, sizeLimit of its volume)"


def mount_point(written: bytes) -> Path:
    """The path of a mount, of any bytes; the kernel writes white space in it as octal numbers."""
    return Path(os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), written)))


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


class ProcessFolder:
    """A folder below `parent` that shows by a lock that its process lives."""

    def __init__(self, parent: Path) -> None:
        """Also removes the folders of processes that have ended; raises OSError."""
        parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        _check_owner(parent)
        for each in parent.iterdir():
            _remove_if_stale(each)
        self.path, self._lock = _locked_folder(parent)

    @property
    def is_there(self) -> bool:
        """Whether the path leads to this folder still."""
        try:
            return os.path.samestat((self.path / _LOCK_FILE).stat(), os.fstat(self._lock))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the folder, and release its lock."""
        _remove(self.path)  # its name is random: no other process has it
        os.close(self._lock)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        # No chmod afterwards: a folder of a volume in a pod passes its group on.
        folder = parent / token_hex(8)
        folder.mkdir(mode=FOLDER_MODE)
        lock = os.open(folder / _LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)  # a process that starts now took it for a stale one


def free_bytes(folder: Path) -> float:
    """The room in the file system of a folder; infinite without a bound. Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize if status.f_blocks else float("inf")
