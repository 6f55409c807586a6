"""The image's contents suffice: built by its own steps, run as the pod would run it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.sidecar_process import SidecarProcess
from tests.image.dockerfile import ROOT, Dockerfile
from tests.image.rehearsal import Rehearsal, can_take_rights_away


@pytest.fixture(scope="module")
def image() -> Iterator[Rehearsal]:
    """The root file system of the image, in a folder that all users can reach."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-image-"))
    folder.chmod(0o755)
    rehearsal = Rehearsal(folder, Dockerfile.parse((ROOT / "Dockerfile").read_text()))
    try:
        rehearsal.build()
        yield rehearsal
    finally:
        shutil.rmtree(folder)


def run(image: Rehearsal, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """The command in the image, to its end."""
    return subprocess.run(
        command,
        cwd=image.code,
        env=image.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_schema_needs_only_the_lock_file(image: Rehearsal) -> None:
    """The configuration's JSON Schema is printed with what the image holds."""
    printed = run(image, image.command(["schema"]))

    assert (printed.returncode, printed.stderr) == (0, "")
    assert "dimensions" in json.loads(printed.stdout)["properties"]


def test_image_serves_by_default(image: Rehearsal) -> None:
    """Without arguments the image answers lookups from its examples, healthy and read-only."""
    sidecar = SidecarProcess(
        image.run_folder, image.command(), environ=image.environ, code=image.code
    )
    health_check = image.dockerfile.last("HEALTHCHECK").value.partition("CMD ")[2]
    asked = json.loads(health_check.replace(":8816/", f":{sidecar.health_port}/"))

    with sidecar.running():
        answer = sidecar.post("/v1/dimensions/airports/lookup", {"keys": ["JFK", "???"]})
        health = run(image, image.with_rights(asked))

    assert answer.json()["outcomes"] == ["fetched", "missing"]
    assert (health.returncode, health.stderr) == (0, "")


def test_health_check_fails_without_a_sidecar(image: Rehearsal) -> None:
    """The health check is no formality: nobody on the port is a failure."""
    health_check = image.dockerfile.last("HEALTHCHECK").value.partition("CMD ")[2]
    asked = json.loads(health_check.replace(":8816/", ":1/"))

    assert run(image, image.with_rights(asked)).returncode == 1


@pytest.mark.skipif(not can_take_rights_away(), reason="needs root, unshare and setpriv")
def test_rehearsal_has_the_pods_rights(image: Rehearsal) -> None:
    """The rehearsal is as strict as the pod: user 185, no capability, nothing writable."""
    probe = "id -u; id -g; grep CapBnd /proc/self/status; touch /var/x"

    probed = run(image, image.with_rights(["sh", "-c", probe]))

    assert probed.stdout.split() == ["185", "185", "CapBnd:", "0" * 16]
    assert "Read-only file system" in probed.stderr
    assert os.geteuid() == 0


def test_client_is_not_in_the_image(image: Rehearsal) -> None:
    """The service's folders are there, and nothing else of the project."""
    copied = sorted(path.name for path in image.code.iterdir())

    assert copied == ["examples", "lookup_core", "service"]
