"""What a killed run has left goes with the next start; what lives, or is not ours, stays."""

import os
import signal
import subprocess
from pathlib import Path

from tests.image.dead_runs import folder_prefix, kill_all, remove_dead_runs


def process_that_ended() -> int:
    """A number that was a process' a moment ago."""
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def test_dead_runs_leave_nothing(tmp_path: Path) -> None:
    """Its folder and its groups go, in both versions' trees, and also groups without a folder."""
    name, other = (f"{folder_prefix(process_that_ended())}{each}" for each in ("aaaa", "b_bb"))
    left = [tmp_path / name / "database", *groups(tmp_path, name), *groups(tmp_path, other)]
    for each in left:
        each.mkdir(parents=True)

    remove_dead_runs(tmp_path, root=tmp_path / "cgroup")

    assert [each for each in (tmp_path / name, *left) if each.exists()] == []


def test_live_runs_and_strangers_stay(tmp_path: Path) -> None:
    """A run whose process lives, and whatever else has a like name, is left alone."""
    names = (f"{folder_prefix(os.getpid())}aaaa", "sidelook-containers-04_dny5v", "sidelook-1-a")
    kept = [folder for name in names for folder in (tmp_path / name, *groups(tmp_path, name))]
    for each in kept:
        each.mkdir(parents=True)

    remove_dead_runs(tmp_path, root=tmp_path / "cgroup")

    assert [each for each in kept if not each.exists()] == []


def test_processes_of_dead_runs_are_ended(tmp_path: Path) -> None:
    """A build's container outlives its run: it is killed before its group can go."""
    group = groups(tmp_path, f"{folder_prefix(process_that_ended())}aaaa")[0]
    group.mkdir(parents=True)
    process = subprocess.Popen(["/bin/sleep", "60"])
    numbers = group / "cgroup.procs"
    numbers.write_text(f"{process.pid}\n")

    kill_all(group)

    assert process.wait(10) == -signal.SIGKILL


def groups(folder: Path, name: str) -> tuple[Path, Path]:
    """The control groups of a run's database."""
    root = folder / "cgroup"
    return root / f"{name}-postgres-cccc", root / "memory" / f"{name}-postgres-cccc"
