"""The Dockerfile: what an image must be that no linter checks, and what the build context holds."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.image.image import LOCK_FILE, ROOT, Dockerfile, DockerIgnore
from tools.image.root_file_system import SOCKETS, USER

TEXT = (ROOT / "Dockerfile").read_text()
SHIPPED = Dockerfile.parse(TEXT)
IGNORED = DockerIgnore.parse((ROOT / ".dockerignore").read_text())
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
    (base,) = (each.variables() for each in SHIPPED.of("ARG") if not each.stage)

    assert re.fullmatch(r"python:3\.11(\.\d+)?-slim.*", base["PYTHON_IMAGE"])
    assert [each.value for each in SHIPPED.of("FROM")] == [
        *("${PYTHON_IMAGE} AS build", "scratch AS run"),
    ]
    assert [each.value for each in SHIPPED.of("COPY", stage="run")] == ["--from=build /image /"]


def test_user_is_not_root() -> None:
    """The user is numeric, as runAsNonRoot requires, and has the ids of the pod template."""
    assert SHIPPED.last("USER").value == "185:185"


def test_packages_come_from_the_lock_file() -> None:
    """The installation checks hashes, builds nothing, and installs the lock file only."""
    (installed,) = (each.value for each in SHIPPED.of("RUN") if "pip install" in each.value)

    assert "--require-hashes" in installed
    assert "--only-binary=:all:" in installed
    assert f"-r {LOCK_FILE}" in installed


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


def test_process_receives_signals_and_drains() -> None:
    """The entry point has the exec form: a shell would not forward SIGTERM, which drains."""
    assert SHIPPED.last("ENTRYPOINT").value == '["python", "-m", "service"]'
    assert SHIPPED.last("CMD").value == '["serve"]'
    assert SHIPPED.last("STOPSIGNAL").value == "SIGTERM"


def test_root_is_never_written() -> None:
    """Python writes no compiled files, and the socket lies in the folder that user 185 owns."""
    variables = SHIPPED.last("ENV").variables()

    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert variables["SIDELOOK_LISTEN__UNIX"] == f"/{SOCKETS}/sidelook.sock"
    assert SHIPPED.last("USER").value == f"{USER}:{USER}"


def test_label_is_the_projects_version() -> None:
    """The image has the version of the project."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert [each.variables() for each in SHIPPED.of("ARG", stage="run")] == [{"VERSION": version}]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "service/.env",
        "examples/.env.local",
        "examples/tls/server.key",
        "service/server.pem",
        "examples/sidelook.sock",
        "examples/sidelook.sock.lock",
        "service/__pycache__/app.pyc",
        "k8s/secret.example.yaml",
        "tests/conftest.py",
        "tools/debian.py",
        "tools/image/build.py",
        "requirements/dev.txt",
    ],
)
def test_build_context_has_nothing_else(path: str) -> None:
    """Secrets, temporary files and what the service does not need are not in the build context."""
    assert not IGNORED.lets_through(path)
