"""Screenshots of status page and dashboard, with the data of one run of the demonstration.

The demonstration changes tables during a stream, and then keeps some lookups going.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.debian import debian_tool
from tools.pictures.dashboard import draw_dashboard
from tools.pictures.dashboard_data import SHOWN_ROWS, Period, panel_data
from tools.pictures.status_page import take_status_page
from tools.processes.prometheus_process import PrometheusProcess
from tools.processes.until import until

_LABELS = {"namespace": "shop", "pod": "enrich-exec-1"}
_START_TIMEOUT_S = 300.0  # until its sidecar is ready; the first run downloads Kafka
_RUN_TIMEOUT_S = 600.0  # from then on, until its streams have ended
_STOP_TIMEOUT_S = 60.0
_PAGE = re.compile(r"status page, while this runs: (http://127\.0\.0\.1:(\d+)/)")
_LAST_LINE = "Ctrl-C stops everything."
_HISTORY_S = 240.0  # of the dashboard


@dataclass(frozen=True, slots=True)
class _Demonstration:
    process: "subprocess.Popen[bytes]"
    log: Path

    def wait_for(self, pattern: str, *, within_s: float) -> "re.Match[str]":
        """The first match in its output; RuntimeError with the output if it ends before."""

        def is_known() -> bool:
            return bool(re.search(pattern, self.log.read_text())) or self.process.poll() is not None

        until(is_known, within_s=within_s)
        found = re.search(pattern, self.log.read_text())
        if found is None:
            raise RuntimeError(f"the demonstration has ended:\n{self.log.read_text()}")
        return found


def take_screenshots(folder: Path, *, seconds: int) -> list[Path]:
    """Write status-page and dashboard, light and dark, after this time of steady lookups.

    Raises ToolUnavailable without Chromium or Prometheus, RuntimeError if the demonstration fails.
    """
    prometheus_program = debian_tool("prometheus", "prometheus")
    with TemporaryDirectory(prefix="pictures-") as work, _running(Path(work)) as demonstration:
        page = demonstration.wait_for(_PAGE.pattern, within_s=_START_TIMEOUT_S)
        prometheus = PrometheusProcess(prometheus_program, Path(work), {int(page[2]): _LABELS})
        with prometheus.running():
            demonstration.wait_for(re.escape(_LAST_LINE), within_s=_RUN_TIMEOUT_S)
            paths = list(take_status_page(page[1], folder, seconds=seconds))
            now = time.time()
            panels = panel_data(prometheus, SHOWN_ROWS, Period(now - _HISTORY_S, now))
    return [*paths, *draw_dashboard(panels, folder)]


@contextmanager
def _running(folder: Path) -> Iterator[_Demonstration]:
    """Run the demonstration; it stops all of its processes at the end."""
    log = folder / "log"
    command = [sys.executable, "-m", "demo", "--live", "--serve", "--folder", str(folder / "demo")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield _Demonstration(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_TIMEOUT_S)
