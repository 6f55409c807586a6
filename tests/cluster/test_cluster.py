"""A Kubernetes cluster of this machine, in which a Spark job runs with the shipped manifests."""

import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tools.cluster.machine import control_groups, lack, run_folder
from tools.cluster.programs import cluster_programs
from tools.debian import ToolUnavailable
from tools.k8s.manifests import BASE, POD_TEMPLATE, ROOT
from tools.processes.until import until

WHOLE_TIMEOUT_S = 1500.0  # the first run builds Kubernetes
STEPS = (
    *("API server: ", "node: ", "database: ", "install: ", "job: ", "sidecar: ", "full table: "),
    *("driver deleted: ", "stream: "),
)
RIGHT = "lost = 0, doubled = 0, wrong = 0"
# {case: (text of the pod template, its replacement, the cause that is printed)}
BROKEN = {
    "wrong probe path": (
        "path: /startupz",
        "path: /startup",
        "Startup probe failed: HTTP probe failed with statuscode: 404",
    ),
    "no native sidecar": (
        "      restartPolicy: Always\n",
        "",
        "may not be set for init containers without restartPolicy=Always",
    ),
    "wrong socket path": (
        "sidelook-socket, mountPath: /run/sidelook, readOnly",
        "sidelook-socket, mountPath: /run/lookup, readOnly",
        "no sidecar at unix:///run/sidelook/sidelook.sock",
    ),
}


@pytest.fixture(autouse=True)
def _patience() -> None:
    faulthandler.cancel_dump_traceback_later()  # runs have a time limit of their own


@pytest.mark.nightly
def test_job_and_stream_run_in_the_cluster() -> None:
    """A job and a stream under faults: each step succeeds, all records are right."""
    with running_cluster("--faults") as played:
        printed, _ = played.communicate(timeout=WHOLE_TIMEOUT_S)

    done = [line.split(" s  ", 1)[-1] for line in printed.splitlines() if line[:2] == "ok"]
    assert played.returncode == 0, printed
    assert [step for step in STEPS if any(each.startswith(step) for each in done)] == list(STEPS)
    found = re.search(rf"{RIGHT} over ([\d,]+) records in \d+ batches and (\d+) faults", printed)
    assert found is not None, printed
    assert int(found[1].replace(",", "")) >= 1_000_000
    assert int(found[2]) >= 30
    assert remains(played.pid) == []


@pytest.mark.nightly
def test_broken_manifests_fail_with_their_cause(tmp_path: Path) -> None:
    """Clusters that run side by side each name the fault of their own manifests."""
    wrong = {}
    with ExitStack() as stack:
        runs = {}
        for name, (right, replacement, _) in BROKEN.items():
            folder = Path(shutil.copytree(BASE, tmp_path / name))
            template = folder / POD_TEMPLATE.relative_to(BASE)
            text = template.read_text()
            assert right in text
            template.write_text(text.replace(right, replacement))
            runs[name] = stack.enter_context(running_cluster("--manifests", str(folder)))
        for name, played in runs.items():
            printed, _ = played.communicate(timeout=WHOLE_TIMEOUT_S)
            if played.returncode != 1 or BROKEN[name][2] not in printed:
                wrong[name] = (played.returncode, printed)

    assert wrong == {}
    assert [each for played in runs.values() for each in remains(played.pid)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_aborted_run_leaves_nothing(sent: signal.Signals) -> None:
    """SIGTERM removes all; after SIGKILL no process remains, and the next run removes the rest."""
    with running_cluster() as played:
        assert played.stdout is not None
        while "node: " not in (line := played.stdout.readline()):
            assert line, "ended early"
        played.send_signal(sent)
        played.wait(timeout=60)
    if sent is signal.SIGKILL:
        until(lambda: not processes_of(played.pid), within_s=30)
        with run_folder():  # of the next run
            pass

    assert remains(played.pid) == []


def test_missing_prerequisites_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root, control groups or Go, the message has the remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert "run it as root" in lack(1000)
    assert f"no control groups at {tmp_path}: mount" in lack(0, tmp_path)
    with pytest.raises(ToolUnavailable, match="no go on the PATH; install Go"):
        cluster_programs()


@contextmanager
def running_cluster(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`make cluster` with arguments; ended if the test fails."""
    command = [sys.executable, "-m", "tools.cluster", *arguments]
    played = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield played
    finally:
        if played.poll() is None:
            played.terminate()
            played.wait(timeout=60)
        if played.stdout is not None:
            played.stdout.close()


def remains(pid: int) -> list[str]:
    """Processes, mounts, control groups and folders of a run that has ended."""
    name = f"sidelook-cluster-{pid}-"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    folders = Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{name}*")  # only read
    found = [each for each in mounts if name in each]
    return [*found, *map(str, (*folders, *control_groups(name))), *processes_of(pid)]


def processes_of(pid: int) -> list[str]:
    """The commands of processes that name the folder of a run."""
    name = f"sidelook-cluster-{pid}-".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes()
        except OSError:
            continue  # it has just ended
        if name in command:
            found.append(command.decode(errors="replace"))
    return found
