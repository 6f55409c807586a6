"""The Unix socket of the default way in: for its owner and group, and for one process only.

Only binds; serving it is the HTTP side's business.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lookup_core.errors import ConfigurationError

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
