"""Private folder of a local sidecar: its socket and its log."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

PREFIX = "sidelook-local-"  # of its folder, which may be removed when no process uses it
SOCKET = "sidelook.sock"
LOG = "sidecar.log"
_MAX_PATH_BYTES = 103  # of a Unix socket, on macOS; Linux allows 107


def private_folder() -> Path:
    """A new folder that only this user can open, with a path that is short enough for a socket."""
    folder = Path(tempfile.gettempdir())
    longest = folder / f"{PREFIX}12345678" / SOCKET
    base = folder if len(os.fsencode(longest)) <= _MAX_PATH_BYTES else Path("/tmp")  # noqa: S108 -- mkdtemp is safe there
    _remove_abandoned(base)
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))


def locked_log(folder: Path) -> IO[bytes]:
    """A new log; it is locked until this process, and the one that writes it, have closed it."""
    new = folder / f"{LOG}.new"
    output = new.open("wb")
    fcntl.flock(output, fcntl.LOCK_EX)
    new.rename(folder / LOG)  # never seen without its lock
    return output


def _remove_abandoned(base: Path) -> None:
    """Remove this user's folders that no process uses, as after SIGKILL of a driver."""
    for path in base.glob(f"{PREFIX}*/{LOG}"):
        # Another user's folder, or one in use, or just removed.
        with suppress(OSError), path.open("r+b") as log_file:
            fcntl.flock(log_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.parent.lstat().st_uid == os.getuid():
                shutil.rmtree(path.parent, ignore_errors=True)
