"""A Kubernetes cluster of this machine, in which a Spark job runs with the shipped manifests."""

import faulthandler
import subprocess
import sys
from pathlib import Path

from tools.image.archive import write_archive
from tools.image.image import ROOT

WHOLE_TIMEOUT_S = 1500.0  # the first run builds Kubernetes
STEPS = ("API server: ", "node: ", "database: ", "install: ", "job: ")


def test_job_runs_in_the_cluster() -> None:
    """Each step succeeds, in its order."""
    faulthandler.cancel_dump_traceback_later()  # it has a time limit of its own
    played = subprocess.run(
        [sys.executable, "-m", "tools.cluster"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=WHOLE_TIMEOUT_S,
    )

    done = [line.split(" s  ", 1)[-1] for line in played.stdout.splitlines() if line[:2] == "ok"]
    assert played.returncode == 0, played.stdout
    assert [step for step in STEPS if any(each.startswith(step) for each in done)] == list(STEPS)


def test_equal_roots_have_equal_archives(tmp_path: Path) -> None:
    """The order of creation and times of files do not count; contents do."""
    digests = []
    for number, content in enumerate(("a", "a", "b")):
        root = tmp_path / str(number)
        root.mkdir()
        for name in ("x", "y") if number else ("y", "x"):
            (root / name).write_text(content)
        archive = tmp_path / f"{number}.tar"
        digests.append(write_archive(root, archive, name="localhost/a:1", config={"User": "185"}))

    assert digests[0] == digests[1] != digests[2]
