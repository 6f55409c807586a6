"""Local sidecar: the service as a child process of the driver, for Spark on one machine.

Starts, watches and stops the process; `Sidecar.local` is its public face. The service is another
package, possibly in another environment, so nothing of it is imported.
"""

import atexit
import fcntl
import http.client
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO, Any

import pyspark

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    ErrorCode,
    SidecarUnreachable,
    of_dimension,
)

log = logging.getLogger(__name__)

OLDEST_SERVICE_PYTHON = (3, 11)
_EXIT_CONFIG = 78  # sysexits.h: the configuration is invalid
_POLL_S = 0.05  # while it starts
_WATCH_S = 1.0  # between two looks at the process and the Spark session
_REPLY_S = 5.0
_DRAIN_S = 20.0  # the service itself needs at most 10 s, and 2 s for responses
_TAIL_LINES = 20
_SAME_MACHINE = re.compile(
    r"local(-cluster)?(\[.*\])?|spark://(localhost|127\.[\d.]+|\[::1\])(:\d+)?"
)
_OVERRIDES = {
    # Of the listeners only a socket in a private folder: no port that another process may have.
    "SIDELOOK_LISTEN__HTTP": "null",
    "SIDELOOK_LISTEN__TLS": "null",
    "SIDELOOK_LISTEN__HEALTH": "null",
    # Only the driver's user can open that folder; files of a server are often absent here.
    "SIDELOOK_AUTH__TOKEN_FILE": "null",
    "SIDELOOK_AUTH__ADMIN_TOKEN_FILE": "null",
}

# A folder of this name may be removed when no process uses it.
_FOLDER_PREFIX = "sidelook-local-"
_SOCKET = "sidelook.sock"
_LOG = "sidecar.log"
_MAX_SOCKET_PATH_BYTES = 103  # on macOS; Linux allows 107
_held: weakref.WeakSet[Any] = weakref.WeakSet()  # pipes to local sidecars, and their locked logs


def _close_held() -> None:
    for file in _held:
        file.close()


# A forked child that outlives the driver would hold the sidecar's pipe, and so keep it running.
os.register_at_fork(after_in_child=_close_held)


class LocalProcess:
    """A running service; it ends with `close`, with the Spark session, and with this process."""

    def __init__(self, config: Path, *, python: str | None) -> None:
        """Start the process; raises ValueError or OSError if that is not possible."""
        check_executors_are_here()
        self._owner = os.getpid()
        self._python = interpreter(python)
        self._folder = private_folder()
        self._is_closed = threading.Event()
        self._closing = threading.Lock()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._output = stack.enter_context(locked_log(self._folder))
            self._read_log_bytes = 0  # for events
            self._process = subprocess.Popen(  # noqa: S603 -- a fixed list of arguments
                # -P: a package `service` in the working directory is another one.
                [
                    *(self._python, "-P", "-m", "service", "serve", "--until-eof"),
                    *("--config", str(config.absolute())),
                ],
                # The other end of this pipe closes with the driver, however that ends.
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env=self._environ(),
                start_new_session=True,  # an interrupted notebook cell does not reach it
            )
            stack.pop_all()
        _held.update((self._process.stdin, self._output))
        atexit.register(self.close)

    def _environ(self) -> dict[str, str]:
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.upper().startswith(("SIDELOOK_LISTEN", "SIDELOOK_AUTH"))
        }
        return {**kept, **_OVERRIDES, "SIDELOOK_LISTEN__UNIX": str(self._folder / _SOCKET)}

    @property
    def url(self) -> str:
        """The URL of its Unix socket."""
        return f"unix://{self._folder / _SOCKET}"

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until it accepts lookups of all dimensions, then watch the process.

        Raises ConfigurationError with all faults of the file, BackendError for the first failed
        attempt to reach a backend, ModuleNotFoundError without the service's package, ValueError
        for an older Python, and SidecarUnreachable if the process ends or the time is over. The
        process is closed then.
        """
        with ExitStack() as stack:
            stack.callback(self.close)
            self._wait(time.monotonic() + timeout_s, timeout_s)
            stack.pop_all()
        threading.Thread(target=self._watch, name="sidelook-local", daemon=True).start()

    def _wait(self, deadline_s: float, timeout_s: float) -> None:
        while (reason := self._unready_reason()) is not None:
            if self._process.poll() is not None:
                raise self._end_error()
            for event in self._new_events("dimension.unavailable"):
                detail = of_dimension(event["dimension"], event["detail"])
                raise BackendError(_error_code(event["code"]), detail)
            if time.monotonic() > deadline_s:
                remedy = f"not ready within {timeout_s:g} s: {reason}; raise start_timeout"
                raise SidecarUnreachable(self.url, remedy)
            time.sleep(_POLL_S)

    def _unready_reason(self) -> str | None:
        """Why it does not accept lookups yet; None if it does."""
        with closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(_REPLY_S)
            try:
                connection.sock.connect(str(self._folder / _SOCKET))
                connection.request("GET", "/readyz")
                reply = connection.getresponse()
                body = reply.read()
            except OSError as error:
                return f"it does not listen yet ({error})"
        if reply.status == http.HTTPStatus.OK:
            return None
        return str(json.loads(body)["detail"])

    def check(self) -> None:
        """Raise SidecarUnreachable if it has ended, ValueError if executors are elsewhere."""
        check_executors_are_here()
        if self._is_closed.is_set():
            reason = "this local sidecar is closed, or ended with its Spark session"
            raise SidecarUnreachable(self.url, f"{reason}; call Sidecar.local again")
        if self._process.poll() is not None:
            raise self._end_error()

    def close(self) -> None:
        """End the process after its drain; a second call does nothing."""
        if os.getpid() != self._owner:
            return  # a forked child, which does not own the process
        with self._closing:
            if self._is_closed.is_set():
                return
            self._is_closed.set()
            self._process.terminate()
            try:
                self._process.wait(_DRAIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdin is not None:  # it is a pipe
                self._process.stdin.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._output.close()
        atexit.unregister(self.close)

    def _watch(self) -> None:
        """Close it when the Spark session ends; log an end of the process itself."""
        context = active_context()
        while not self._is_closed.wait(_WATCH_S):
            if self._process.poll() is not None:
                log.warning("%s", self._end_error())
                return
            former, context = context, active_context()
            if former is not None and context is not former:
                self.close()

    def _end_error(self) -> Exception:
        code, lines = self._process.returncode, list(self._plain_lines())
        if code == _EXIT_CONFIG:
            return ConfigurationError(lines)
        if any(line.endswith("No module named service") for line in lines):
            name = f"{self._python} has no sidecar: run its `-m pip install sidelook-service`"
            return ModuleNotFoundError(f"{name}, or name another environment's Python in python=")
        if "Unknown option: -P" in lines:  # an older Python does not start
            return ValueError(f"the sidecar needs Python 3.11 or newer; {self._python} is older")
        tail = "\n".join(self._log().splitlines()[-_TAIL_LINES:])
        return SidecarUnreachable(self.url, f"the process ended with exit code {code}:\n{tail}")

    def _plain_lines(self) -> Iterator[str]:
        return (line for line in self._log().splitlines() if not line.startswith("{"))

    def _new_events(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of this name that were logged since the last call."""
        with (self._folder / _LOG).open("rb") as log_file:
            log_file.seek(self._read_log_bytes)
            added = log_file.read()
        whole_lines = added[: added.rfind(b"\n") + 1]
        self._read_log_bytes += len(whole_lines)
        for line in whole_lines.splitlines():
            if line.startswith(b"{") and (event := json.loads(line))["event"] == name:
                yield event

    def _log(self) -> str:
        try:
            return (self._folder / _LOG).read_text(errors="replace")
        except FileNotFoundError:  # closed meanwhile
            return ""


def active_context() -> Any:  # noqa: ANN401 -- SparkContext, which Spark Connect's client lacks
    """The driver's SparkContext; None without one, as under Spark Connect."""
    return getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)


def check_executors_are_here() -> None:
    """Raise ValueError if the active session's executors may be on other machines."""
    context = active_context()
    if context is not None and not is_on_one_machine(context.master):
        raise ValueError(
            f"Sidecar.local needs executors on this machine, and the master is {context.master!r};"
            " use master('local[*]'), or a sidecar on each node:"
            " see docs/tutorials/spark-cluster.md"
        )


def is_on_one_machine(master: str) -> bool:
    """Whether all executors of this Spark master run on the driver's machine."""
    return _SAME_MACHINE.fullmatch(master) is not None


def _error_code(text: str) -> ErrorCode:
    try:
        return ErrorCode(text)
    except ValueError:  # a newer service has it
        return ErrorCode.BACKEND_UNAVAILABLE


def interpreter(python: str | None, version: Sequence[int | str] = sys.version_info) -> str:
    """The Python of the service; ValueError if it is this one, of `version`, and too old."""
    if python is not None:
        return python
    if tuple(version[:2]) < OLDEST_SERVICE_PYTHON:
        raise ValueError(
            f"the sidecar needs Python 3.11 or newer, and this is {version[0]}.{version[1]};"
            " install sidelook-service into an environment of a newer one, and name its Python:"
            " python='/path/of/its/bin/python'"
        )
    return sys.executable


def private_folder() -> Path:
    """A new folder that only this user can open, with a path that is short enough for a socket."""
    folder = Path(tempfile.gettempdir())
    longest = folder / f"{_FOLDER_PREFIX}12345678" / _SOCKET
    base = folder if len(os.fsencode(longest)) <= _MAX_SOCKET_PATH_BYTES else Path("/tmp")  # noqa: S108 -- mkdtemp is safe there
    _remove_abandoned(base)
    return Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=base))


def locked_log(folder: Path) -> IO[bytes]:
    """A new log; it is locked until this process, and the one that writes it, have closed it."""
    new = folder / f"{_LOG}.new"
    output = new.open("wb")
    fcntl.flock(output, fcntl.LOCK_EX)
    new.rename(folder / _LOG)  # never seen without its lock
    return output


def _remove_abandoned(base: Path) -> None:
    """Remove this user's folders that no process uses, as after SIGKILL of a driver."""
    for path in base.glob(f"{_FOLDER_PREFIX}*/{_LOG}"):
        # Another user's folder, or one in use, or just removed.
        with suppress(OSError), path.open("r+b") as log_file:
            fcntl.flock(log_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.parent.lstat().st_uid == os.getuid():
                shutil.rmtree(path.parent, ignore_errors=True)
