"""Load on an HTTP server by `wrk`, which Debian has: so many connections, each asks without pause.

Runs the tool and reads its figures; what they are compared with is the caller's business.
"""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = 16
_INSTALL = ("apt-get", "install", "-y", "wrk")
_INSTALL_TIMEOUT_S = 300.0
_GRACE_S = 30.0
_SCRIPT = """wrk.method = {method}
wrk.body = {body}
wrk.headers["Content-Type"] = "application/json"

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\\n{{"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, "refused": %d, '
    .. '"broken": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class WrkRequest:
    """What is asked, again and again; a body is JSON."""

    method: str
    path: str
    body: str = ""

    @property
    def script(self) -> str:
        """The same for wrk, and how it is to tell what it found."""
        # A text of JSON without control characters is one of Lua, too.
        body = json.dumps(self.body) if self.body else "nil"
        return _SCRIPT.format(method=json.dumps(self.method), body=body)


@dataclass(frozen=True, slots=True)
class WrkFigures:
    """What one run of wrk saw."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    refused: int  # answers of another status than 2xx or 3xx
    broken: int  # connections that failed, and answers that did not come

    @property
    def requests_per_second(self) -> float:
        """The rate."""
        return self.requests / self.duration_us * 1e6


class WrkMissing(RuntimeError):
    """There is no wrk, and it could not be installed; the message says what to do."""


def installed_wrk() -> str:
    """Where wrk is; installed from Debian where it is not yet. Raises WrkMissing."""
    found = shutil.which("wrk")
    if found is None:
        _install()
        found = shutil.which("wrk")
    if found is None:
        message = f"wrk is needed for the load over HTTP: {' '.join(_INSTALL)}, as root"
        raise WrkMissing(message)
    return found


def wrk_figures(wrk: str, url: str, script: Path, *, seconds: int) -> WrkFigures:
    """Ask for so long by one thread over `CONNECTIONS`; `script` is one of a WrkRequest."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), url]
    done = subprocess.run(  # noqa: S603  our own command
        command, check=True, capture_output=True, text=True, timeout=seconds + _GRACE_S
    )
    return WrkFigures(**json.loads(done.stdout.splitlines()[-1]))


def _install() -> None:
    try:
        subprocess.run(  # noqa: S603  our own command
            _INSTALL, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = f"wrk cannot be installed ({error}); do it as root: {' '.join(_INSTALL)}"
        raise WrkMissing(message) from error
