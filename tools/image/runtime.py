"""Container runtime: runc from Debian, without an engine or a daemon.

Removes the containers, folders and control groups of killed runs.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tools.debian import debian_tool
from tools.image.container import Container
from tools.processes.until import until

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
WHOLE_RUN_TIMEOUT_S = 600.0
CONTROL_GROUPS = Path("/sys/fs/cgroup")
_NAME = re.compile(r"(sidelook-containers-(?P<process>\d+)-[^-]+)(-.*)?")


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A started container, which may have ended."""

    name: str
    runc: Sequence[str]
    process: "subprocess.Popen[bytes]"  # of runc; ends with the container and its status
    log: Path  # standard output and error

    @property
    def is_running(self) -> bool:
        """Whether its first process is running."""
        return self.process.poll() is None

    @property
    def process_id(self) -> int:
        """The id of its first process on this machine."""
        number: int = self._state()["pid"]
        return number

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its first process; a no-op after its end."""
        self._run("kill", self.name, str(number.value))

    def execute(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run another process in it, with the same rights, until it ends."""
        return self._run("exec", self.name, *command)

    def wait(self, within_s: float = END_TIMEOUT_S) -> int:
        """Its exit status, or 128 + signal; raises TimeoutExpired."""
        return self.process.wait(within_s)

    def remove(self) -> None:
        """Kill it; harmless if it has ended."""
        self._run("delete", "--force", self.name)
        self.process.wait(END_TIMEOUT_S)

    def wait_until_it_runs(self) -> None:
        """Wait until its first process has started or ended."""
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
    """runc, and the folder of its bundles, states and logs."""

    folder: Path
    runc: Path

    def start(self, name: str, container: Container) -> RunningContainer:
        """Start a container; its root must exist."""
        bundle = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        # Unique on this machine: concurrent runs must not share a control group.
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
                start_new_session=True,  # Ctrl-C is for the caller
            )
        running = RunningContainer(unique, command, process, log)
        running.wait_until_it_runs()
        return running

    @contextmanager
    def running(self, name: str, container: Container) -> Iterator[RunningContainer]:
        """Like `start`; removes the container at the end."""
        running = self.start(name, container)
        try:
            yield running
        finally:
            running.remove()

    def output(self, name: str, container: Container) -> tuple[int, str]:
        """Run it to its end, and return its exit status and its output."""
        with self.running(name, container) as running:
            return running.wait(within_s=WHOLE_RUN_TIMEOUT_S), running.log.read_text()


@contextmanager
def container_runtime() -> Iterator[ContainerRuntime]:
    """A runtime in a temporary folder that all users can read; raises ToolUnavailable.

    The next run removes the files and processes of a killed run.
    """
    runc = debian_tool("runc", "runc")
    remove_dead_runs(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"sidelook-containers-{os.getpid()}-"))
    folder.chmod(0o755)
    try:
        yield ContainerRuntime(folder, runc)
    finally:
        # The groups of a killed container remain, and its processes may still be ending.
        until(lambda: _are_removed(control_groups(folder.name)), within_s=END_TIMEOUT_S)
        shutil.rmtree(folder)


def remove_dead_runs(folder: Path, *, root: Path = CONTROL_GROUPS) -> None:
    """Remove folders, control groups and processes of runs whose process has ended."""
    groups = control_groups("sidelook-containers", root=root)
    for name in _dead(each.name for each in (*folder.glob("sidelook-containers-*"), *groups)):
        for group in control_groups(name, root=root):
            _kill_all(group)
        until(partial(_are_gone, name, root), within_s=END_TIMEOUT_S)
        shutil.rmtree(folder / name, ignore_errors=True)  # a concurrent start may have removed it


def control_groups(name: str, *, root: Path = CONTROL_GROUPS) -> list[Path]:
    """The control groups of the containers of a runtime with this folder, inner ones first."""
    # Version 1 has a tree for each resource, version 2 has one tree.
    outer = [group for pattern in (f"{name}-*", f"*/{name}-*") for group in root.glob(pattern)]
    inner = (each for group in outer for each in group.rglob("*/"))
    return sorted([*outer, *inner], key=lambda group: len(group.parts), reverse=True)


def _are_removed(groups: list[Path]) -> bool:
    try:
        for group in groups:
            group.rmdir()
    except OSError:
        return False
    return True


def _are_gone(name: str, root: Path) -> bool:
    return _are_removed(control_groups(name, root=root))


def _dead(names: Iterable[str]) -> set[str]:
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    return {match[1] for match in matches if not Path("/proc", match["process"]).exists()}


def _kill_all(group: Path) -> None:
    processes = group / "cgroup.procs"
    for number in processes.read_text().split() if processes.exists() else ():
        try:
            os.kill(int(number), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has just ended
