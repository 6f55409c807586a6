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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lookup_core.errors import ConfigurationError
from service.config.host_port import HostPort
from service.config.listen import Listen

# Connections not accepted yet; the kernel may allow fewer. With aiohttp's default of 128, a burst
# of connections is delayed by a second over TCP, and fails over a Unix socket.
BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """The sockets of each listener; none for a listener that is closed."""

    unix: Sequence[socket.socket]
    http: Sequence[socket.socket]
    health: Sequence[socket.socket]


@contextmanager
def bound_sockets(listen: Listen) -> Iterator[BoundSockets]:
    """Bind all sockets until the block ends; connections wait until they are served.

    Raises ConfigurationError for an address that cannot be bound; then none is.
    """
    with ExitStack() as stack:
        unix = [] if listen.unix is None else [stack.enter_context(unix_socket(listen.unix))]
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


MODE = 0o660  # owner and group: the executor shares the pod's fsGroup


@contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """A listening socket at `path`, removed when the block ends; a stale socket is replaced.

    Raises ConfigurationError if another process serves it, or the folder is not writable.
    """
    with _lock(path):
        bound = _bind(path)
        try:
            yield bound
        finally:
            bound.close()
            path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    # The lock shows whether a process serves the socket: the kernel releases it with the process.
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError([_refusal(path, error)]) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        fault = f"listen.unix: {path}: another process listens there; stop it, or set another path"
        raise ConfigurationError([fault]) from error
    finally:
        os.close(handle)


def _bind(path: Path) -> socket.socket:
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError(
            [f"listen.unix: {path} is not a socket; remove it or choose another path"]
        )
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~MODE)  # set before the bind, so other users never have access
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise ConfigurationError([_refusal(path, error)]) from error
    finally:
        os.umask(mask)
    return bound


def _refusal(path: Path, error: OSError) -> str:
    return (
        f"listen.unix: {path}: {error.strerror or error}; the folder must exist and be writable "
        f"for uid {os.getuid()}, gid {os.getgid()}"
    )
