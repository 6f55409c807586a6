"""Where the sidecar of a pod template makes its socket."""

import re
from pathlib import Path
from typing import Any

import pytest

from service.doctor.deployment.container_findings import (
    IMAGE_SOCKET,
    VARIABLE,
    ContainerSocket,
    container_socket,
    override_findings,
)
from service.doctor.deployment.manifest import Manifest
from tests.service.doctor.findings import MATTER, severities

DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"
ELSEWHERE = {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}


def container(*entries: dict[str, Any]) -> Manifest:
    """A container with these variables, all of the socket's name."""
    return Manifest({"env": [{"name": "PATH", "value": "/bin"}, *entries]})


def variable(**entry: Any) -> dict[str, Any]:  # noqa: ANN401  # as YAML has it
    """The socket's variable."""
    return {"name": VARIABLE, **entry}


def test_image_sets_the_variable() -> None:
    """What the doctor takes for the image's is what the Dockerfile says."""
    (path,) = re.findall(rf"{VARIABLE}=(\S+)", DOCKERFILE.read_text())

    assert Path(path) == IMAGE_SOCKET


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ContainerSocket(IMAGE_SOCKET, is_of_image=True)),
        ([variable(value="/s/s.sock")], ContainerSocket(Path("/s/s.sock"))),
        ([variable(value="/a"), variable(value="/b")], ContainerSocket(Path("/b"))),
        ([variable(value="")], ContainerSocket(None)),
        ([variable(value="null")], ContainerSocket(None)),
        ([variable(**ELSEWHERE)], ContainerSocket(None, is_told=False)),
    ],
)
def test_environment_has_the_last_word(
    entries: list[dict[str, Any]], expected: ContainerSocket
) -> None:
    """The template's variable, of two the later one, or else the image's."""
    assert container_socket(container(*entries)) == expected


@pytest.mark.parametrize(
    ("entries", "configured", "expected"),
    [
        ([], None, []),
        ([], IMAGE_SOCKET, []),
        ([], Path("/s/s.sock"), ["warning"]),
        ([variable(value="/t/t.sock")], Path("/s/s.sock"), []),
        ([variable(**ELSEWHERE)], IMAGE_SOCKET, ["skipped"]),
    ],
)
def test_path_without_effect_is_told(
    entries: list[dict[str, Any]], configured: Path | None, expected: list[str]
) -> None:
    """A path in the file that the image overrides misleads; one that the template sets is meant."""
    socket = container_socket(container(*entries))

    assert severities(override_findings(MATTER, socket, configured)) == expected
