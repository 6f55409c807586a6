"""The Dockerfile: what an image must be that no linter checks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.image.podman import LOCK_FILE, ROOT
from tools.image.root_file_system import SOCKETS, USER

TEXT = (ROOT / "Dockerfile").read_text()
HADOLINT = Path(sys.executable).with_name("hadolint")
UV = Path(sys.executable).with_name("uv")
# The C library of the oldest base image with Python 3.11 is newer than 2.28.
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")


def lint(text: str) -> list[str]:
    """The codes of hadolint's findings."""
    command = [str(HADOLINT), "--no-color", "--format", "json", "-"]
    linted = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [finding["code"] for finding in json.loads(linted.stdout)]


def test_linter_finds_nothing() -> None:
    """Hadolint has no finding of any severity, and has one for a base without a version."""
    assert lint(TEXT) == []
    assert lint("FROM debian:latest\n") == ["DL3007"]


def test_base_is_pinned_and_not_shipped() -> None:
    """The build starts from an image of a fixed version, of which only copied files are shipped."""
    build, _, shipped = TEXT.partition("\nFROM scratch AS run\n")

    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11(\.\d+)?-slim.*$", build, re.MULTILINE)
    assert re.findall(r"^COPY (.*)$", shipped, re.MULTILINE) == ["--from=build /image /"]


def test_packages_come_from_the_lock_file() -> None:
    """The installation checks hashes, builds nothing, and installs the lock file only."""
    (installed,) = re.findall(r"pip install(.*?)&&", TEXT, re.DOTALL)

    assert {"--require-hashes", "--only-binary=:all:", LOCK_FILE} <= set(installed.split())


def test_lock_file_pins_every_package() -> None:
    """Each package of the image has one version and its hashes."""
    lines = (ROOT / LOCK_FILE).read_text().replace("\\\n", "").splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]

    assert packages
    assert [line for line in packages if "==" not in line or "--hash=sha256:" not in line] == []


def installs(requirements: Path, platform: str, folder: Path) -> bool:
    """Whether an index has wheels of these packages for a platform; downloads none."""
    command = [str(UV), "pip", "install", "--dry-run", "--quiet", "--only-binary=:all:"]
    command += ["--python-platform", platform, "--python-version", "3.11"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.full  # needs an index
def test_wheels_exist_for_both_architectures(tmp_path: Path) -> None:
    """Every locked package has a wheel for amd64 and one for arm64; some other package has not."""
    only_amd64 = tmp_path / "requirements.txt"
    only_amd64.write_text("atheris==3.0.0\n")

    assert installs(only_amd64, PLATFORMS[0], tmp_path)
    assert not installs(only_amd64, PLATFORMS[1], tmp_path)
    assert all(installs(ROOT / LOCK_FILE, platform, tmp_path) for platform in PLATFORMS)


@pytest.mark.parametrize("path", ["Dockerfile", "tools/image/root_file_system.py"])
def test_no_architecture_is_named(path: str) -> None:
    """The build takes the architecture from the base image, and so builds for any."""
    text = (ROOT / path).read_text()

    assert re.findall(r"(?i)x86.64|amd64|aarch64|arm64|linux-gnu", text) == []


def test_socket_is_in_the_folder_of_the_user() -> None:
    """Image, root file system and pod template name one user and one folder for the socket."""
    assert f"SIDELOOK_LISTEN__UNIX=/{SOCKETS}/sidelook.sock" in TEXT
    assert f"USER {USER}:{USER}\n" in TEXT
