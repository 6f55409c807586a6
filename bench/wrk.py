"""HTTP load generator `wrk`: installed from Debian, run with a script, its figures parsed."""

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
    '\\n{{"requests": %d, "duration_us": %d, "p99_us": %d, "refused": %d, "broken": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"""


def wrk_script(method: str, body: str = "") -> str:
    """Return a Lua script for `wrk_figures` that repeats one request; `body` is JSON."""
    # A JSON string without control characters is also a Lua string.
    text = json.dumps(body) if body else "nil"
    return _SCRIPT.format(method=json.dumps(method), body=text)


@dataclass(frozen=True, slots=True)
class WrkFigures:
    """Figures of one run."""

    requests: int
    duration_us: int
    p99_us: int
    refused: int  # answers with a status other than 2xx or 3xx
    broken: int  # failed connections and missing answers

    @property
    def requests_per_second(self) -> float:
        """Answered requests per second."""
        return self.requests / self.duration_us * 1e6


class WrkMissing(RuntimeError):
    """wrk is neither installed nor installable; the message says what to do."""


def installed_wrk() -> str:
    """Return the path of wrk, which is installed if necessary; raises WrkMissing."""
    found = shutil.which("wrk")
    if found is None:
        try:
            subprocess.run(  # noqa: S603  our own command
                _INSTALL, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            message = f"wrk cannot be installed ({error}); run as root: {' '.join(_INSTALL)}"
            raise WrkMissing(message) from error
        found = shutil.which("wrk")
    if found is None:
        message = f"the HTTP load needs wrk; run as root: {' '.join(_INSTALL)}"
        raise WrkMissing(message)
    return found


def wrk_figures(wrk: str, url: str, script: Path, *, seconds: int) -> WrkFigures:
    """Send requests for some seconds with one thread and `CONNECTIONS` connections."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), url]
    done = subprocess.run(  # noqa: S603  our own command
        command, check=True, capture_output=True, text=True, timeout=seconds + _GRACE_S
    )
    return WrkFigures(**json.loads(done.stdout.splitlines()[-1]))
