"""Listening sockets of `listen`: TCP, and the Unix socket with its lock.

They are bound before the rest of the sidecar is loaded: an address that is taken ends the start
at once, and no client reaches another process meanwhile.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.host_port import HostPort
from service.config.listen import Listen

# Connections not accepted yet; the kernel may allow fewer. With aiohttp's default of 128, a burst
# of connections is delayed by a second over TCP, and fails over a Unix socket.
BACKLOG = 4096
_SOCKET_MODE = 0o660  # owner and group: the executor shares the pod's fsGroup


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """The sockets of each listener; none for a listener that is closed."""

    unix: "UnixSocket | None"
    http: Sequence[socket.socket]
    health: Sequence[socket.socket]


@contextmanager
def bound_sockets(listen: Listen) -> Iterator[BoundSockets]:
    """Bind all sockets until the block ends; connections wait until they are served.

    Raises ConfigurationError for an address that cannot be bound; then none is.
    """
    with ExitStack() as stack:
        unix = None if listen.unix is None else stack.enter_context(unix_socket(listen.unix))
        http = _tcp_sockets("listen.http", listen.http, stack)
        yield BoundSockets(unix, http, _tcp_sockets("listen.health", listen.health, stack))


def _tcp_sockets(setting: str, where: HostPort | None, stack: ExitStack) -> list[socket.socket]:
    if where is None:
        return []
    try:
        return stack.enter_context(tcp_sockets(where.host, where.port))
    except OSError as error:
        raise bind_fault(setting, where, error) from error


def bind_fault(setting: str, where: HostPort, error: OSError) -> ConfigurationError:
    """The error for an address that cannot be bound, with the remedy if it is known."""
    number = error.errno or 0  # negative for names that do not resolve
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason += f"; another process listens there: find it (ss -ltnp 'sport = :{where.port}')"
        reason += f" and stop it, or set {setting} to another port"
    if error.errno == errno.EADDRNOTAVAIL:
        reason += f"; set {setting} to an address of this machine"
    return ConfigurationError([f"{setting}: {where}: {reason}"])


@contextmanager
def tcp_sockets(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets that listen until the block ends; raises OSError if one cannot be bound."""
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
    )
    with ExitStack() as stack:
        # Without SO_REUSEPORT: two processes must not share an address unnoticed.
        yield [
            stack.enter_context(socket.create_server(address[:2], family=family, backlog=BACKLOG))
            for family, _, _, _, address in found
        ]


@contextmanager
def unix_socket(path: Path) -> Iterator["UnixSocket"]:
    """A socket bound to `path` until the block ends; a stale socket is replaced.

    Raises ConfigurationError if another process serves it, or the folder is not writable.
    """
    with ExitStack() as opened:
        yield UnixSocket(path, opened)


class UnixSocket:
    """A Unix socket, its file, and the lock that shows that a process serves it.

    Other processes can remove or replace the file, or its folder: then no client can connect.
    """

    def __init__(self, path: Path, opened: ExitStack) -> None:
        """Bind the path, as `unix_socket` does; `opened` closes sockets, file and lock."""
        self.path = path
        self.fault: str | None = None  # why no client can connect, as of the last `renew`
        self._opened = opened
        self._lock = _locked(path)
        opened.callback(lambda: os.close(self._lock))
        self.socket = opened.enter_context(_bind(path))
        self._file = _identity(path)  # the kernel does not reuse it before the socket is closed
        opened.callback(self._remove_file)

    def renew(self) -> socket.socket | None:
        """Bind the path again if it is not the file of the socket; the new socket, or None.

        The former socket stays open until it is closed, or until the end. A file that another
        process serves, or that is no socket, is left alone: see `fault`.
        """
        self.fault = None
        if _identity(self.path) == self._file:
            return None
        try:
            self._lock = _locked(self.path, self._lock)
            self.socket = self._opened.enter_context(_bind(self.path))
        except ConfigurationError as error:
            (self.fault,) = error.faults
            return None
        self._file = _identity(self.path)
        return self.socket

    def _remove_file(self) -> None:
        """Remove the file, unless it was replaced."""
        if self._file is not None and _identity(self.path) == self._file:
            with suppress(OSError):  # it may be gone now, or its folder may be read-only
                self.path.unlink()


def _locked(path: Path, held: int | None = None) -> int:
    """The lock of the path: `held` if its file is still the same; else `held` is closed."""
    # The kernel releases the lock with the process. Its file may be replaced, too.
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError([_refusal(path, error)]) from error
    if held is not None and os.path.sameopenfile(handle, held):
        os.close(handle)
        return held
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise _taken(path) from error
    if held is not None:
        os.close(held)
    return handle


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at the path; None without a file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bind(path: Path) -> socket.socket:
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError(
            [f"listen.unix: {path} is not a socket; remove it or choose another path"]
        )
    if _is_served(path):  # by a process that takes no lock
        raise _taken(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~_SOCKET_MODE)  # set before the bind, so other users never have access
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise ConfigurationError([_refusal(path, error)]) from error
    finally:
        os.umask(mask)
    return bound


def _is_served(path: Path) -> bool:
    """Whether a process listens at the path, as far as can be known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 -- the library's own
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # such as a full backlog; a path that is too long is no file
            return path.exists()
    return True


def _taken(path: Path) -> ConfigurationError:
    fault = f"listen.unix: {path}: another process listens there; stop it, or set another path"
    return ConfigurationError([fault])


def _refusal(path: Path, error: OSError) -> str:
    return (
        f"listen.unix: {path}: {error.strerror or error}; the folder must exist and be writable "
        f"for uid {os.getuid()}, gid {os.getgid()}"
    )
