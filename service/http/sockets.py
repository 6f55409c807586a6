"""Listening sockets: TCP, the Unix socket with its lock, and serving an application on them."""

import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from aiohttp import web

from lookup_core.errors import ConfigurationError
from service.http.limits import Limits

MAX_LINE_BYTES = 8190  # of the request line and of each header
MAX_HEADERS = 128


def listener(app: web.Application, limits: Limits, *, shutdown_timeout_s: float) -> web.AppRunner:
    """A runner without sites.

    Its keep-alive limit is absolute from the last response on, so it ends silent connections and
    headers that drip. Handlers are cancelled when their caller leaves. `shutdown_timeout_s` is how
    long a clean-up waits for the requests under way.
    """
    return web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=limits.header_deadline_s,
        lingering_time=limits.linger_s,
        max_field_size=MAX_LINE_BYTES,
        max_headers=MAX_HEADERS,
        max_line_size=MAX_LINE_BYTES,
        shutdown_timeout=shutdown_timeout_s,
    )


# Connections not accepted yet; the kernel may allow fewer. With aiohttp's 128 a burst of callers
# is lost, by TCP for a second and by a Unix socket for good, instead of being served or refused.
BACKLOG = 4096


@asynccontextmanager
async def tcp_sockets(host: str, port: int) -> AsyncIterator[list[socket.socket]]:
    """Sockets that listen until the block ends; raises OSError where one cannot be bound."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
    )
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_server(address[:2], family=family, backlog=BACKLOG))
            for family, _, _, _, address in found
        ]


MODE = 0o660  # owner and group: the executor shares the pod's fsGroup


@contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """A listening socket at `path`, removed in the end; a stale file there is replaced.

    Raises ConfigurationError when another process serves it, or the folder does not take it.
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
    # The lock, not the socket file, says who serves: it goes with its process, however that ends.
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError([_refusal(path, error)]) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigurationError(
            [f"listen.unix: {path}: already running in another process"]
        ) from error
    finally:
        os.close(handle)


def _bind(path: Path) -> socket.socket:
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise ConfigurationError(
            [f"listen.unix: {path} is not a socket; remove it or choose another path"]
        )
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~MODE)  # from the first moment on: no window for others
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
