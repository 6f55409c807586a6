"""Containers on this machine: runc, the runtime that most nodes have, as one program of Debian.

No engine and no daemon; images, networks and restarts are the users' business.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.debian_tool import debian_tool
from tests.end_to_end.until import until
from tests.image.container import Container
from tests.image.dead_runs import are_removed, control_groups, folder_prefix, remove_dead_runs

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
WHOLE_RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that was started; it may have ended."""

    name: str
    runc: Sequence[str]
    process: "subprocess.Popen[bytes]"  # ends with the container, and as it did
    log: Path  # both of its outputs

    @property
    def is_running(self) -> bool:
        """Whether its first process lives."""
        return self.process.poll() is None

    @property
    def process_id(self) -> int:
        """Its first process, as this machine numbers it."""
        number: int = self._state()["pid"]
        return number

    def signal(self, number: signal.Signals) -> None:
        """To its first process; nothing happens if that has just ended."""
        self._run("kill", self.name, str(number.value))

    def execute(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Another process in it, with its rights, to the end."""
        return self._run("exec", self.name, *command)

    def wait(self, within_s: float = END_TIMEOUT_S) -> int:
        """How it ended: its exit status, or 128 and the signal; raises TimeoutExpired."""
        return self.process.wait(within_s)

    def remove(self) -> None:
        """End it whatever it does; harmless if it has ended."""
        self._run("delete", "--force", self.name)
        self.process.wait(END_TIMEOUT_S)

    def wait_until_it_runs(self) -> None:
        """Its first process is what it is told to run, or has ended already."""
        until(self._has_begun, within_s=START_TIMEOUT_S)

    def _has_begun(self) -> bool:
        return not self.is_running or self._state().get("status") == "running"

    def _state(self) -> dict[str, Any]:
        printed = self._run("state", self.name).stdout
        state: dict[str, Any] = json.loads(printed) if printed else {}
        return state

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*self.runc, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S
        )


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """Where bundles, states and logs of the containers lie."""

    folder: Path
    runc: Path

    def start(self, name: str, container: Container) -> RunningContainer:
        """Start it under a name that no running one has; its root must exist."""
        bundle = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        # The name is this machine's: two runs side by side must not share a control group.
        unique = f"{self.folder.name}-{bundle.name}"
        settings = container.settings(control_group=f"/{unique}")
        (bundle / "config.json").write_text(json.dumps(settings))
        command = (str(self.runc), "--root", str(self.folder / "state"))
        log = bundle / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "run", "--bundle", str(bundle), unique],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for whoever runs this
            )
        running = RunningContainer(unique, command, process, log)
        running.wait_until_it_runs()
        return running

    @contextmanager
    def running(self, name: str, container: Container) -> Iterator[RunningContainer]:
        """As `start`; at the end it is gone."""
        running = self.start(name, container)
        try:
            yield running
        finally:
            running.remove()

    def output(self, name: str, container: Container) -> tuple[int, str]:
        """Run it to its end: its exit status and what it printed."""
        with self.running(name, container) as running:
            return running.wait(within_s=WHOLE_RUN_TIMEOUT_S), running.log.read_text()


@contextmanager
def container_runtime() -> Iterator[ContainerRuntime]:
    """In a folder that all users can reach and that is gone at the end; raises ToolUnavailable.

    Whoever is killed leaves the folder and its control groups to the next one.
    """
    runc = debian_tool("runc", "runc")
    remove_dead_runs(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=folder_prefix(os.getpid())))
    folder.chmod(0o755)
    try:
        yield ContainerRuntime(folder, runc)
    finally:
        # Whoever is killed from outside leaves its groups; their processes may need a moment to go.
        until(lambda: are_removed(control_groups(folder.name)), within_s=END_TIMEOUT_S)
        shutil.rmtree(folder)
