"""The Dockerfile obeys every rule and the linter, and each notices one that does not."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.image.dockerfile import ROOT, Dockerfile
from tests.image.image_rules import LOCK_FILE, RULES, broken_rules

TEXT = (ROOT / "Dockerfile").read_text()
HADOLINT = Path(sys.executable).with_name("hadolint")

# {what is wrong: (text, what stands there instead, the rules that notice)}
BREAKAGES = {
    "floating base": (
        "python:3.11-slim",
        "python:latest",
        {"bases_are_one_pinned_image"},
    ),
    "second base": (
        "FROM ${PYTHON_IMAGE} AS run",
        "FROM debian:12 AS run",
        {"bases_are_one_pinned_image"},
    ),
    "root": ("USER 185:185", "USER root", {"user_is_not_root"}),
    "user by name": ("USER 185:185", "USER sidelook", {"user_is_not_root"}),
    "no hashes": (" --require-hashes", "", {"packages_come_from_the_lock_file"}),
    "source packages": (" --only-binary=:all:", "", {"packages_come_from_the_lock_file"}),
    "all of the tree": ("COPY service service", "COPY . .", {"only_the_service_is_copied"}),
    "misspelt path": (
        "COPY service service",
        "COPY servicee service",
        {"only_the_service_is_copied", "what_is_copied_exists"},
    ),
    "fetched by URL": (
        "COPY examples",
        "ADD https://example.org/x /x\nCOPY examples",
        {"nothing_is_fetched_by_url"},
    ),
    "shell form": (
        '["python", "-m", "service"]',
        "python -m service",
        {"entry_point_is_the_service"},
    ),
    "other signal": ("STOPSIGNAL SIGTERM", "STOPSIGNAL SIGINT", {"stop_signal_drains"}),
    "health is readiness": ("/livez", "/readyz", {"health_check_asks_for_life_only"}),
    "bytecode at run time": (
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONHASHSEED=0",
        {"code_writes_no_bytecode"},
    ),
    "socket beside the code": (
        "/run/sidelook/sidelook.sock",
        "/app/sidelook.sock",
        {"socket_lies_in_the_shared_folder"},
    ),
    "socket folder of root": (
        "--owner=185",
        "--owner=0",
        {"socket_lies_in_the_shared_folder"},
    ),
}


def findings_of_hadolint(text: str) -> list[str]:
    """The codes of all that the linter finds."""
    command = [str(HADOLINT), "--no-color", "--format", "json", "-"]
    linted = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [finding["code"] for finding in json.loads(linted.stdout)]


def test_shipped_dockerfile_breaks_no_rule() -> None:
    """The Dockerfile obeys every rule."""
    assert broken_rules(Dockerfile.parse(TEXT)) == []


@pytest.mark.parametrize(("old", "new", "noticed_by"), BREAKAGES.values(), ids=BREAKAGES)
def test_broken_dockerfile_breaks_its_rule(old: str, new: str, noticed_by: set[str]) -> None:
    """A fault in the Dockerfile is noticed by the rule that forbids it, and by no other."""
    assert old in TEXT

    broken = Dockerfile.parse(TEXT.replace(old, new))

    assert set(broken_rules(broken)) == noticed_by


def test_every_rule_has_a_breakage() -> None:
    """No rule is there that has not been seen to fail."""
    noticed = set().union(*(noticed_by for _, _, noticed_by in BREAKAGES.values()))

    assert noticed == {rule.__name__ for rule in RULES}


def test_linter_finds_nothing() -> None:
    """The linter has no finding of any severity."""
    assert findings_of_hadolint(TEXT) == []


def test_linter_notices_floating_tag() -> None:
    """The linter is really asked: a base without a version is a finding."""
    assert findings_of_hadolint("FROM debian:latest\n") == ["DL3007"]


def test_label_is_the_projects_version() -> None:
    """The image says the version that the project has."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    arguments = [each.variables() for each in Dockerfile.parse(TEXT).of("ARG", stage="run")]

    assert arguments == [{"VERSION": version}]


def test_lock_file_pins_every_package() -> None:
    """Each package of the image stands there in one version with its hashes."""
    lines = (ROOT / LOCK_FILE).read_text().replace("\\\n", "").splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]

    assert packages
    assert [line for line in packages if "==" not in line or "--hash=sha256:" not in line] == []
