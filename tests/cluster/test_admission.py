"""API servers of the oldest and the newest Kubernetes admit k8s/, and refuse what is broken.

Whatever they refuse, the checks that need no cluster report too.
"""

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
from tools.k8s.manifests import CONFIG_MAP, EXAMPLES, FOLDER, POD_TEMPLATE, SECRET, read_manifest
from tools.k8s.pod_rules import Deployment, broken_rules
from tools.k8s.validation import schema_faults

pytestmark = pytest.mark.full

IN_THE_CLUSTER = {"Install", "Run a job", "Look at a sidecar"}  # `make cluster` follows them
BY_OTHER_PROGRAMS = {"Install with Helm"}  # the chart is rendered by Helm's library instead

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]

MONITORING = FOLDER / "components" / "monitoring"
POLICY = FOLDER / "base" / "network-policy-spark.yaml"
PROFILE = "spec.securityContext.seccompProfile.type"


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


# {case: (change to the executor pod, part of the API server's message, part of the check's report)}
PODS: dict[str, tuple[Change, str, str]] = {
    "unknown field": (
        _sidecar("restartPolicies", "Always"),
        ".restartPolicies: field not declared",
        "'restartPolicies' was unexpected",
    ),
    "port as text": (
        _sidecar("ports.0.containerPort", "8816"),
        "containerPort",
        "'8816' is not of type 'integer'",
    ),
    "no native sidecar": (
        _sidecar("restartPolicy", None),
        "may not be set for init containers without restartPolicy=Always",
        "restartPolicy",
    ),
    "no such volume": (_sidecar("volumeMounts.0.name", "socket"), 'Not found: "socket"', "socket"),
    "root": (_at("spec.securityContext.runAsUser", 0), "runAsUser=0", "all_run_as_user_185"),
    "no profile": (_at(PROFILE, "Unconfined"), "seccompProfile", "no_container_has_privileges"),
    "capability": (
        _sidecar("securityContext.capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}),
        "unrestricted capabilities",
        "no_container_has_privileges",
    ),
    "escalation": (
        _sidecar("securityContext.allowPrivilegeEscalation", True),  # noqa: FBT003  a field
        "allowPrivilegeEscalation != false",
        "no_container_has_privileges",
    ),
    "network of the node": (
        _at("spec.hostNetwork", True),  # noqa: FBT003  a field
        "hostNetwork=true",
        "node_is_isolated",
    ),
    "path of the node": (
        _at("spec.volumes.0", {"name": "sidelook-socket", "hostPath": {"path": "/run"}}),
        "hostPath",
        "node_is_isolated",
    ),
    "request above the limit": (
        _sidecar("resources.requests.memory", "2Gi"),
        "must be less than or equal to memory limit",
        "memory_is_guaranteed",
    ),
}
# {case: (object, change, part of the API server's message, part of the check's report)}
OBJECTS = {
    "policy": (
        read_manifest(POLICY),
        _at("spec.ingres", []),
        ".spec.ingres: field not declared",
        "'ingres' was unexpected",
    ),
    "version of a monitor": (
        read_manifest(MONITORING / "pod-monitor.yaml"),
        _at("apiVersion", "monitoring.coreos.com/v2"),
        'no matches for kind "PodMonitor"',
        "has no PodMonitor of",
    ),
    "rules": (
        read_manifest(MONITORING / "prometheus-rule.yaml"),
        _at("spec.groups.0.rule", []),
        ".spec.groups[0].rule: field not declared",
        "'rule' was unexpected",
    ),
    "Kubeflow's type": (
        read_manifest(EXAMPLES / "kubeflow-spark-application.yaml"),
        _at("spec.type", 3),
        "spec.type",
        "spec.type: 3 is not",
    ),
    "Apache's number in sparkConf": (
        read_manifest(EXAMPLES / "apache-spark-application.yaml"),
        _at("spec.sparkConf", {"spark.executor.instances": 2}),
        "spec.sparkConf",
        "2 is not of type 'string'",
    ),
}


@pytest.fixture(scope="module", params=VERSIONS)
def answers(request: pytest.FixtureRequest) -> dict[str, str]:
    """What an API server says of the shipped and of the broken manifests."""
    faulthandler.cancel_dump_traceback_later()  # the first run builds Kubernetes
    cases = {f"shipped {name}": objects for name, objects in shipped_cases().items()}
    for name, (change, *_) in PODS.items():
        cases[f"broken {name}"] = [started_pod(_changed(read_manifest(POD_TEMPLATE), change))]
    for name, (manifest, change, *_) in OBJECTS.items():
        cases[f"broken {name}"] = [_changed(manifest, change)]
    return refusals(request.param, cases)


def test_shipped_manifests_are_admitted(answers: dict[str, str]) -> None:
    """Base, overlays, charts and examples; their executor pods under Pod Security `restricted`."""
    shipped = {name: each for name, each in answers.items() if name.startswith("shipped")}

    assert len(shipped) >= 10
    assert {name: each for name, each in shipped.items() if each} == {}


def test_broken_manifests_are_refused(answers: dict[str, str]) -> None:
    """The API server names the fault."""
    expected = {name: message for name, (_, message, _) in PODS.items()}
    expected |= {name: message for name, (_, _, message, _) in OBJECTS.items()}

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


def test_the_checks_report_what_is_refused() -> None:
    """`make k8s-check` and `sidelook doctor` find each of these faults without a cluster."""
    missed = {}
    config_map, secret = read_manifest(CONFIG_MAP), read_manifest(SECRET)
    for name, (change, _, report) in PODS.items():
        pod = _changed(read_manifest(POD_TEMPLATE), change)
        found = [*schema_faults(pod), *broken_rules(Deployment(pod, config_map, secret))]
        if not any(report in each for each in found):
            missed[name] = found
    for name, (manifest, change, _, report) in OBJECTS.items():
        found = schema_faults(_changed(manifest, change))
        if not any(report in each for each in found):
            missed[name] = found

    assert missed == {}


def _changed(manifest: Manifest, change: Change) -> Manifest:
    changed = copy.deepcopy(manifest)
    change(changed)
    return changed
