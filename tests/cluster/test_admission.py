"""API servers of the oldest and the newest Kubernetes admit k8s/, and refuse what is broken."""

import copy
import faulthandler
import re
from collections.abc import Callable
from typing import Any

import pytest

from tools.cluster.admission import (
    SECTIONS,
    VERSIONS,
    followed,
    refusals,
    shipped_cases,
    started_pod,
)
from tools.cluster.page import PAGE, commands
from tools.k8s.manifests import FOLDER, POD_TEMPLATE, read_manifest

pytestmark = pytest.mark.full

IN_THE_CLUSTER = {"Install", "Run a job", "Look at a sidecar"}  # `make cluster` follows them
BY_OTHER_PROGRAMS = {"Install with Helm"}  # the chart is rendered by Helm's library instead

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]

MONITORING = FOLDER / "components" / "monitoring"
POLICY = FOLDER / "base" / "network-policy-spark.yaml"


def _sidecar(path: str, value: object) -> Change:
    return _at(f"spec.initContainers.0.{path}", value)


def _at(path: str, value: object) -> Change:
    """Sets a field, or removes it for None."""

    def change(manifest: Manifest) -> None:
        *parents, last = [int(each) if each.isdigit() else each for each in path.split(".")]
        part: Any = manifest
        for each in parents:
            part = part[each]
        if value is None:
            del part[last]
        else:
            part[last] = value

    return change


# {case: (change to the executor pod, part of the API server's message)}
PODS: dict[str, tuple[Change, str]] = {
    "unknown field": (
        _sidecar("restartPolicies", "Always"),
        ".restartPolicies: field not declared",
    ),
    "no native sidecar": (
        _sidecar("restartPolicy", None),
        "may not be set for init containers without restartPolicy=Always",
    ),
    "root": (_at("spec.securityContext.runAsUser", 0), "runAsUser=0"),
    "path of the node": (
        _at("spec.volumes.0", {"name": "sidelook-socket", "hostPath": {"path": "/run"}}),
        "hostPath",
    ),
}
# {case: (object, change, part of the API server's message)}
OBJECTS = {
    "policy": (
        read_manifest(POLICY),
        _at("spec.ingres", []),
        ".spec.ingres: field not declared",
    ),
    "version of a monitor": (
        read_manifest(MONITORING / "pod-monitor.yaml"),
        _at("apiVersion", "monitoring.coreos.com/v2"),
        'no matches for kind "PodMonitor"',
    ),
}


@pytest.fixture(scope="module", params=VERSIONS)
def answers(request: pytest.FixtureRequest) -> dict[str, str]:
    """What an API server says of the shipped and of the broken manifests."""
    faulthandler.cancel_dump_traceback_later()  # the first run builds Kubernetes
    cases = {f"shipped {name}": objects for name, objects in shipped_cases().items()}
    for name, (change, _) in PODS.items():
        cases[f"broken {name}"] = [started_pod(_changed(read_manifest(POD_TEMPLATE), change))]
    for name, (manifest, change, _) in OBJECTS.items():
        cases[f"broken {name}"] = [_changed(manifest, change)]
    return refusals(request.param, cases)


def test_shipped_manifests_are_admitted(answers: dict[str, str]) -> None:
    """Base, overlays, charts and examples; their executor pods under Pod Security `restricted`."""
    shipped = {name: each for name, each in answers.items() if name.startswith("shipped")}

    assert len(shipped) >= 10
    assert {name: each for name, each in shipped.items() if each} == {}


def test_broken_manifests_are_refused(answers: dict[str, str]) -> None:
    """The API server names the fault."""
    expected = {name: message for name, (_, message) in PODS.items()}
    expected |= {name: message for name, (*_, message) in OBJECTS.items()}

    wrong = {
        name: answers[f"broken {name}"]
        for name, message in expected.items()
        if message not in answers[f"broken {name}"]
    }
    assert not wrong, wrong


def test_page_can_be_followed() -> None:
    """The commands of k8s/README.md succeed at an API server, or `make cluster` runs them."""
    faulthandler.cancel_dump_traceback_later()
    sections = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    with_commands = {each for each in sections if commands(each)}

    printed = followed(VERSIONS[-1])

    assert with_commands == IN_THE_CLUSTER | BY_OTHER_PROGRAMS | set(SECTIONS)
    assert [each for each in SECTIONS if " created" not in printed[each]] == []


def _changed(manifest: Manifest, change: Change) -> Manifest:
    changed = copy.deepcopy(manifest)
    change(changed)
    return changed
