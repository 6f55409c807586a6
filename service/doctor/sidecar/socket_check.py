"""The Unix socket of the sidecar: is it there, who may open it, and does anybody serve it.

Looks from outside only: the lock is not touched, and nothing is asked over the socket.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from service.doctor.finding import Finding, Subject

MODE = 0o660  # owner and group
_CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """What the file system says of a socket, and what became of connecting to it."""

    path: Path
    has_folder: bool = True
    is_folder_writable: bool = True  # for this process
    mode: int | None = None  # None: there is nothing at the path
    owner: tuple[int, int] = (0, 0)  # uid, gid
    me: tuple[int, tuple[int, ...]] = (0, (0,))  # uid, all gids
    connect_errno: int | None = None  # None: somebody listens
    lock_holder: int | None = None  # the process that holds the lock; None: none that is seen


@dataclass(frozen=True, slots=True)
class SocketCheck:
    """The socket at a path; `root` is where /proc is."""

    path: Path
    root: Path = field(default=Path("/"))

    @property
    def matter(self) -> Subject:
        """The socket."""
        return Subject("socket", str(self.path))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """What is wrong with it."""
        # In a thread: a socket whose backlog is full lets callers wait.
        facts = await asyncio.to_thread(read_socket, self.path, self.root)
        for finding in socket_findings(self.matter, facts):
            yield finding


def socket_findings(matter: Subject, facts: SocketFacts) -> Iterator[Finding]:
    """What the facts mean."""
    uid, gids = facts.me
    folder = facts.path.parent
    if not facts.has_folder:
        yield matter.error(
            f"the folder {folder} does not exist",
            "make it, or mount the volume there (emptyDir, in both containers); "
            "where no sidecar is meant to run, give --without-sidecar",
        )
        return
    if facts.mode is None:
        yield matter.error("there is no socket", _start_remedy(facts))
        return
    if not stat.S_ISSOCK(facts.mode):
        yield matter.error("is not a socket", "remove it, or set listen.unix to another path")
        return
    yield from _permission_findings(matter, facts)
    if facts.connect_errno is None:
        holder = "" if facts.lock_holder is None else f" by process {facts.lock_holder}"
        yield matter.ok(
            f"is served{holder}; mode {facts.mode & 0o777:04o}, uid and gid "
            f"{facts.owner[0]}:{facts.owner[1]}"
        )
    elif facts.connect_errno == errno.ECONNREFUSED:
        yield matter.error(
            "nobody serves it: the file is left over from a sidecar that ended",
            "start the sidecar, which replaces it; what ended it stands in its log",
        )
    else:
        yield matter.error(
            f"cannot be opened by uid {uid}, gids {', '.join(map(str, gids))}: "
            f"{os.strerror(facts.connect_errno)}",
            f"run both containers as uid {facts.owner[0]} or in group {facts.owner[1]} "
            "(runAsUser, runAsGroup, fsGroup)",
        )


def _permission_findings(matter: Subject, facts: SocketFacts) -> Iterator[Finding]:
    assert facts.mode is not None
    mode = facts.mode & 0o777
    if mode & 0o007:
        yield matter.error(
            f"is open to everybody (mode {mode:04o})",
            f"chmod {MODE:04o}; find out who changed it: the sidecar makes it so",
        )
    elif mode != MODE:
        yield matter.warning(
            f"has mode {mode:04o}, so that owner or group cannot use it",
            f"chmod {MODE:04o}; find out who changed it: the sidecar makes it so",
        )
    if facts.me[0] == facts.owner[0] and not facts.is_folder_writable:
        yield matter.warning(
            f"its folder {facts.path.parent} is not writable: a sidecar that restarts cannot bind",
            f"let uid {facts.me[0]} write there, and mount it without readOnly",
        )


def _start_remedy(facts: SocketFacts) -> str:
    if not facts.is_folder_writable:
        return (
            f"let uid {facts.me[0]} write to {facts.path.parent}: the sidecar makes its socket "
            "there"
        )
    if facts.lock_holder is not None:
        return f"process {facts.lock_holder} holds its lock: restart it, somebody took its socket"
    return "start the sidecar; if it runs, name its socket with --endpoint, or look at its log"


def read_socket(path: Path, root: Path = Path("/")) -> SocketFacts:
    """The facts; nothing is changed by it."""
    uid, gids = os.geteuid(), tuple(sorted({os.getegid(), *os.getgroups()}))
    folder = path.parent
    if not folder.is_dir():
        return SocketFacts(path, has_folder=False, me=(uid, gids))
    is_writable = os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
    try:
        status = path.lstat()
    except OSError:
        mode, owner, refusal = None, (0, 0), None
    else:
        mode, owner = status.st_mode, (status.st_uid, status.st_gid)
        refusal = _connect(path) if stat.S_ISSOCK(mode) else None
    return SocketFacts(
        path,
        is_folder_writable=is_writable,
        mode=mode,
        owner=owner,
        me=(uid, gids),
        connect_errno=refusal,
        lock_holder=_lock_holder(Path(f"{path}.lock"), root),
    )


def _connect(path: Path) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError as error:  # TimeoutError, too: a backlog that is full
            return error.errno or errno.ETIMEDOUT
    return None


def _lock_holder(lock: Path, root: Path) -> int | None:
    """Who holds it, as far as this process may see: `12: FLOCK ADVISORY WRITE 345 00:2f:678 0 EOF`.

    Taking the lock to see whether it is free would keep a sidecar from starting just then.
    """
    try:
        status = lock.stat()
        lines = (root / "proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for fields in map(str.split, lines):
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place:
            return int(fields[4])
    return None
