"""The shipped executor pod obeys every rule, and a pod with a fault is refused."""

import tomllib
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tools.k8s.manifests import CONFIG_MAP, POD_TEMPLATE, ROOT, SECRET, Manifest, read_manifest
from tools.k8s.pod_rules import RULES, Deployment, broken_rules

SHIPPED = Deployment(*(read_manifest(path) for path in (POD_TEMPLATE, CONFIG_MAP, SECRET)))
SIDECAR: Manifest = SHIPPED.pod["spec"]["initContainers"][0]
ROOT_CONTAINER = {
    "name": "other",
    "securityContext": {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
USER = "all_run_as_user_185"
SECRET_RULE = "secret_belongs_to_the_sidecar_alone"
STOLEN = {"name": "sidelook-secret", "mountPath": "/opt/secret"}
ABSENT = object()  # removes the field
# {fault: (its fields below pod.spec, how the reported faults begin)}; 0 is the sidecar
BREAKAGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    # of the doctor; its other findings have tests of their own
    "no sidecar": ({"initContainers": []}, ["there is no container sidelook"]),
    # of the shipped pods
    "executor name": ({"containers.0.name": "executor"}, ["executor_is_named_as_spark_expects"]),
    "root allowed": ({"securityContext.runAsNonRoot": False}, [USER]),
    "no group": ({"securityContext.fsGroup": ABSENT}, [USER]),
    "root user": ({"initContainers.0.securityContext.runAsUser": 0}, [USER]),
    "root allowed there": ({"initContainers.0.securityContext.runAsNonRoot": False}, [USER]),
    "root group": ({"initContainers.0.securityContext.runAsGroup": 0}, [USER]),
    "second group root": ({"securityContext.supplementalGroups": [0]}, [USER]),
    "root container": ({"initContainers.1": ROOT_CONTAINER}, [USER]),
    "service links": ({"enableServiceLinks": ABSENT}, ["environment_is_its_own"]),
    "short startup": (
        {"initContainers.0.startupProbe.failureThreshold": 600},
        ["startup_outlasts_full_loads"],
    ),
    "hook": ({"initContainers.0.lifecycle": {"preStop": {}}}, ["sidecar_ends_by_sigterm_alone"]),
    "other port": (
        {"initContainers.0.ports.0.containerPort": 9999},
        ["probes_reach_the_health_listener"],
    ),
    "little memory": (
        {
            "initContainers.0.resources.requests.memory": "767Mi",
            "initContainers.0.resources.limits.memory": "767Mi",
        },
        ["memory_is_guaranteed"],
    ),
    "limited processors": (
        {"initContainers.0.resources.limits.cpu": "2"},
        ["memory_is_guaranteed"],
    ),
    "secret by path": (
        {"initContainers.0.volumeMounts.2.subPath": "dsn"},
        [SECRET_RULE],
    ),
    "writable root": (
        {"initContainers.0.securityContext.readOnlyRootFilesystem": False},
        ["sidecar_root_is_read_only"],
    ),
    "API token": ({"automountServiceAccountToken": ABSENT}, ["no_service_account_token"]),
    "liveness is readiness": (
        {"initContainers.0.livenessProbe.httpGet.path": "/readyz"},
        ["probes_use_their_routes"],
    ),
    "startup by exec": (
        {"initContainers.0.startupProbe.httpGet": ABSENT},
        ["probes_use_their_routes"],
    ),
    "short liveness": (
        {"initContainers.0.livenessProbe.failureThreshold": 1},
        ["liveness_tolerates_half_a_minute"],
    ),
    "socket on disk": (
        {"volumes.0.emptyDir": {}},
        ["socket_volume_holds_the_caches"],
    ),
    "volume below the caches": (
        {"volumes.0.emptyDir.sizeLimit": "447Mi"},
        ["socket_volume_holds_the_caches"],
    ),
    "volume of any size": (
        {"volumes.0.emptyDir.sizeLimit": ABSENT},
        ["socket_volume_holds_the_caches"],
    ),
    "writable caches": (
        {"containers.0.volumeMounts.0.readOnly": ABSENT},
        ["executors_only_read_the_caches"],
    ),
    "secret for all": ({"volumes.2.secret.defaultMode": 0o444}, [SECRET_RULE]),
    "secret in the executor": ({"containers.0.volumeMounts.1": STOLEN}, [SECRET_RULE]),
    "another ConfigMap": ({"volumes.1.configMap.name": "other"}, ["configuration_is_mounted"]),
    "another secret": ({"volumes.2.secret.secretName": "other"}, ["secret_is_the_documented_one"]),
    "no image": ({"initContainers.0.image": None}, ["image_is_pinned"]),
    "latest image": ({"initContainers.0.image": "sidelook:latest"}, ["image_is_pinned"]),
    "untagged image": ({"initContainers.0.image": "sidelook"}, ["image_is_pinned"]),
    "unguaranteed memory": (
        {"initContainers.0.resources.requests.memory": "512Mi"},
        ["memory_is_guaranteed"],
    ),
}
# {fault: (text of the configuration, its replacement, how the reported faults begin)}
MISCONFIGURATIONS: dict[str, tuple[str, str, list[str]]] = {
    "invalid": ("health:", "helth:", ["its ConfigMap has no valid sidelook.yaml"]),
    "health on loopback": (
        "0.0.0.0:8816",
        "127.0.0.1:8816",
        ["probes_reach_the_health_listener"],
    ),
    "lookups by TCP": ("http: null", "http: 127.0.0.1:8815", ["lookups_use_the_socket_only"]),
    "socket elsewhere": (
        "/run/sidelook/",
        "/run/lookup/",
        [
            "socket_is_that_of_the_image",
            "socket_volume_holds_the_caches",
            "executors_only_read_the_caches",
        ],
    ),
    "unknown file of the secret": (
        "/dsn",
        "/address",
        ["its ConfigMap has no valid sidelook.yaml", "secret_is_the_documented_one"],
    ),
    "address in the ConfigMap": (
        "dsn_file: /etc/sidelook-secret/dsn",
        "dsn: postgresql://user@host/database",
        [SECRET_RULE],
    ),
}


def changed(part: Any, path: str, value: object) -> None:  # noqa: ANN401  # any YAML
    """Set the field at a dotted path."""
    *steps, last = path.split(".")
    for step in steps:
        part = part[int(step) if step.isdigit() else step]
    if value is ABSENT:
        del part[last]
    elif isinstance(part, list):
        part[int(last) : int(last) + 1] = [value]
    else:
        part[last] = value


def test_shipped_pod_breaks_no_rule() -> None:
    """The manifests in k8s/ have no finding of the doctor and obey every rule."""
    assert broken_rules(SHIPPED) == []


@pytest.mark.parametrize(("fields", "expected"), BREAKAGES.values(), ids=BREAKAGES)
def test_faulty_pod_is_refused(fields: dict[str, Any], expected: list[str]) -> None:
    """A fault of the pod is reported by the doctor or by the rule that forbids it, and no other."""
    deployment = replace(SHIPPED, pod=deepcopy(SHIPPED.pod))

    for path, value in fields.items():
        changed(deployment.pod["spec"], path, value)

    assert begin_as(broken_rules(deployment), expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"), MISCONFIGURATIONS.values(), ids=MISCONFIGURATIONS
)
def test_unfitting_configuration_is_refused(old: str, new: str, expected: list[str]) -> None:
    """A configuration that does not fit the pod is reported."""
    deployment = replace(SHIPPED, config_map=deepcopy(SHIPPED.config_map))
    text = deployment.config_map["data"]["sidelook.yaml"]
    assert old in text

    deployment.config_map["data"]["sidelook.yaml"] = text.replace(old, new)

    assert begin_as(broken_rules(deployment), expected)


def begin_as(faults: list[str], expected: list[str]) -> bool:
    """Whether there is one fault for each beginning, in this order."""
    assert len(faults) == len(expected), faults
    return [fault[: len(start)] for fault, start in zip(faults, expected, strict=True)] == expected


def test_every_rule_refuses_a_pod() -> None:
    """Each rule appears in the table of faults, so that it has been seen to fail."""
    cases = [*BREAKAGES.values(), *MISCONFIGURATIONS.values()]
    seen = {start for case in cases for start in case[-1]}

    assert {rule.__name__ for rule in RULES} <= seen


def test_image_tag_is_the_projects_version() -> None:
    """The template runs the version that it is released with."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert SIDECAR["image"] == f"sidelook:{version}"
