"""The executor's container, and what its program has told so far.

What it runs stands in `executor_program`.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.until import until
from tests.image.container import Container
from tests.image.container_runtime import RunningContainer
from tests.rehearsal.database import CUSTOMERS
from tests.rehearsal.executor_program import RECORDS
from tests.rehearsal.host_root import HostRoot
from tests.rehearsal.steps import demand

JOB_TIMEOUT_S = 180.0
RIGHT = {"rows": RECORDS, "lines": RECORDS, "wrong": 0}


def executor_container(
    root: HostRoot, folder: Path, *, socket: str, gates: tuple[str, ...]
) -> Container:
    """As the image of Spark would be: this machine's Python, Java and PySpark."""
    root.make()
    folder.mkdir()
    folder.chmod(0o1777)  # whoever the manifest lets it run as
    arguments = (f"unix://{socket}", str(CUSTOMERS), str(folder), *gates)
    command = [sys.executable, "-m", "tests.rehearsal.executor_program", *arguments]
    return root.container(command, writable=[folder])


@dataclass(frozen=True, slots=True)
class Executor:
    """It runs, and its jobs can be waited for."""

    container: RunningContainer
    folder: Path

    def open(self, gate: str) -> None:
        """Let the job go on that waits there."""
        (self.folder / gate / "open").touch()

    def is_at(self, gate: str) -> bool:
        """Whether the job with this gate has begun."""
        return (self.folder / gate).exists()

    def demand_rows(self, job: str) -> None:
        """Wait until the job has ended; all of its rows must be right."""
        until(
            lambda: job in self.results() or not self.container.is_running, within_s=JOB_TIMEOUT_S
        )
        result = self.results().get(job)
        demand(result is not None, f"the executor ended: {self.container.log.read_text()}")
        demand(result == RIGHT, f"{result} and not {RIGHT}")

    def results(self) -> dict[str, dict[str, int]]:
        """{job: its counts} of all jobs that have ended."""
        lines = self.container.log.read_text(errors="replace").splitlines()
        results = [json.loads(line) for line in lines if line.startswith('{"job"')]
        return {result.pop("job"): result for result in results}
