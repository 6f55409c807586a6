"""Unix socket check: existence, permissions, listener and lock.

Read-only: it connects to the socket, but sends no request and does not take the lock.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.doctor.finding import Finding, Subject

_SOCKET_MODE = 0o660  # owner and group
_CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """Properties of a socket file, and the result of a connection to it."""

    path: Path
    has_folder: bool = True
    is_folder_writable: bool = True  # for this process
    mode: int | None = None  # None: no file at the path
    owner: tuple[int, int] = (0, 0)  # uid, gid
    me: tuple[int, tuple[int, ...]] = (0, (0,))  # uid and gids of this process
    connect_errno: int | None = None  # None: a process listens
    lock_holder: int | None = None  # process that holds the lock; None: unknown or free


def check_socket(subject: Subject, path: Path) -> Iterator[Finding]:
    """Yield the faults of a socket, or one finding without a fault."""
    yield from socket_findings(subject, read_socket(path))


def socket_findings(subject: Subject, facts: SocketFacts) -> Iterator[Finding]:
    """Yield the findings for these properties."""
    if not facts.has_folder:
        yield subject.error(
            f"the folder {facts.path.parent} does not exist",
            "create it, or mount the volume there (emptyDir, in both containers); without a "
            "sidecar, give --without-sidecar",
        )
    elif facts.mode is None:
        yield subject.error("there is no socket", _start_remedy(facts))
    elif not stat.S_ISSOCK(facts.mode):
        yield subject.error("is not a socket", "remove it, or set listen.unix to another path")
    else:
        yield from _permission_findings(subject, facts, facts.mode & 0o777)
        yield _listener_finding(subject, facts)


def _listener_finding(subject: Subject, facts: SocketFacts) -> Finding:
    (owner_uid, owner_gid), (uid, gids) = facts.owner, facts.me
    if facts.connect_errno is None:
        holder = "" if facts.lock_holder is None else f" by process {facts.lock_holder}"
        mode = (facts.mode or 0) & 0o777
        return subject.ok(
            f"is served{holder}; mode {mode:04o}, uid and gid {owner_uid}:{owner_gid}"
        )
    if facts.connect_errno == errno.ECONNREFUSED:
        return subject.error(
            "no process listens: the file is left over from a sidecar that ended",
            "start the sidecar, which replaces it; its log has the reason of the end",
        )
    return subject.error(
        f"cannot be opened by uid {uid}, gids {', '.join(map(str, gids))}: "
        f"{os.strerror(facts.connect_errno)}",
        f"run both containers as uid {owner_uid} or in group {owner_gid} "
        "(runAsUser, runAsGroup, fsGroup)",
    )


def _permission_findings(subject: Subject, facts: SocketFacts, mode: int) -> Iterator[Finding]:
    remedy = f"chmod {_SOCKET_MODE:04o}, which is the sidecar's own mode; find out what changed it"
    if mode & 0o007:
        yield subject.error(f"is open to all users (mode {mode:04o})", remedy)
    elif mode != _SOCKET_MODE:
        yield subject.warning(f"has mode {mode:04o}: owner or group cannot use it", remedy)
    if facts.me[0] == facts.owner[0] and not facts.is_folder_writable:
        yield subject.warning(
            f"its folder {facts.path.parent} is not writable: a restarted sidecar cannot bind",
            f"make it writable for uid {facts.me[0]}, and mount it without readOnly",
        )


def _start_remedy(facts: SocketFacts) -> str:
    if not facts.is_folder_writable:
        folder = facts.path.parent
        return f"make {folder} writable for uid {facts.me[0]}: the sidecar creates its socket there"
    if facts.lock_holder is not None:
        return f"restart process {facts.lock_holder}, which holds the lock: its socket was removed"
    return "start the sidecar; if it runs, see its log, or name its socket with --endpoint"


def own_ids() -> tuple[int, tuple[int, ...]]:
    """Return uid and gids of this process."""
    return os.geteuid(), tuple(sorted({os.getegid(), *os.getgroups()}))


def read_socket(path: Path) -> SocketFacts:
    """Read the properties of a socket; a missing file or folder is no error."""
    me = own_ids()
    folder = path.parent
    if not folder.is_dir():
        return SocketFacts(path, has_folder=False, me=me)
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
        me=me,
        connect_errno=refusal,
        lock_holder=_lock_holder(Path(f"{path}.lock")),
    )


def _connect(path: Path) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError as error:  # TimeoutError if the backlog is full
            return error.errno or errno.ETIMEDOUT
    return None


def _lock_holder(lock: Path) -> int | None:
    """Return the process in a line such as `12: FLOCK ADVISORY WRITE 345 00:2f:678 0 EOF`.

    Taking the lock instead could prevent a sidecar from starting at that moment.
    """
    try:
        status = lock.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for fields in map(str.split, lines):
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place:
            return int(fields[4])
    return None
