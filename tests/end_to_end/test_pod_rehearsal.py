"""The rehearsal of the executor pod with the shipped manifests and with faulty ones."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.k8s.manifests import BASE, CONFIG_MAP, POD_TEMPLATE, ROOT

WHOLE_TIMEOUT_S = 280.0
STEPS = (  # each with the faults that it shows
    "its startup probe passes at 10.244.0.10, before the executor starts",  # G1, G2
    "with the rights and the memory limit of its manifest",  # G10
    "a Spark job in local-cluster",
    "Prometheus scrapes",
    "sidecar killed during a job",
    "sidecar above its memory limit during a job",  # G6
    "database down: lookups fail, the sidecar stays alive",  # G3
    "sidecar frozen",
    "database back",
    "pod deleted",  # G4
    "nothing is left",
)


def rehearsed(manifests: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run `make rehearsal` with periods of an eighth."""
    command = [sys.executable, "-m", "tools.rehearsal", "--pace", "8", *options]
    command += ["--manifests", str(manifests)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WHOLE_TIMEOUT_S
    )


def test_shipped_pod_passes_the_rehearsal() -> None:
    """G1 to G4, G6 and G10: each step is ok, in its order, and the exit status is 0."""
    played = rehearsed(BASE)

    lines = [line for line in played.stdout.splitlines() if line.startswith("ok ")]
    found = [next((line for line in lines if step in line), step) for step in STEPS]
    assert (played.returncode, played.stderr) == (0, ""), played.stdout
    assert found == lines[-len(STEPS) :]


@pytest.mark.parametrize(
    ("file", "old", "new", "reason", "patience_s"),
    [
        pytest.param(
            *(POD_TEMPLATE, "path: /startupz", "path: /startup", ":8816/startup: 404", 120),
            id="wrong probe path",
        ),
        pytest.param(
            *(CONFIG_MAP, "0.0.0.0:8816", "0.0.0.0:8817", "Connection refused", 20),
            id="wrong port",
            marks=pytest.mark.full,
        ),
        pytest.param(  # until the third start
            *(POD_TEMPLATE, "/sidelook.yaml", "/other.yaml", "other.yaml", 60),
            id="wrong argument",
            marks=pytest.mark.full,
        ),
    ],
)
def test_broken_pod_fails_at_its_start(
    tmp_path: Path, file: Path, old: str, new: str, reason: str, patience_s: int
) -> None:
    """A fault in the manifests fails its step with the reason, and the exit status is 1."""
    manifests = tmp_path / "base"
    shutil.copytree(BASE, manifests)
    broken = manifests / file.relative_to(BASE)
    assert old in broken.read_text()
    broken.write_text(broken.read_text().replace(old, new))

    played = rehearsed(manifests, "--patience", str(patience_s))

    failed = played.stdout[played.stdout.index("FAILED") :]
    assert played.returncode == 1
    assert "sidecar: its startup probe passes" in failed
    assert reason in failed
