"""The shipped executor pod obeys every rule, and each rule notices a pod that does not."""

import tomllib
from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.k8s.manifests import CONFIG_MAP, POD_TEMPLATE, ROOT, SECRET, Manifest, read_manifest
from tests.k8s.pod_rules import RULES, Deployment, broken_rules

# The manifests as they stand in k8s/; a test breaks a copy.
SHIPPED = Deployment(*(read_manifest(path) for path in (POD_TEMPLATE, CONFIG_MAP, SECRET)))


def spec(deployment: Deployment) -> Manifest:
    """What the pod is made of."""
    parts: Manifest = deployment.pod["spec"]
    return parts


def make_ordinary(deployment: Deployment) -> None:
    """Turn the sidecar into a second ordinary container."""
    spec(deployment)["containers"].append(spec(deployment)["initContainers"].pop())


def replace_setting(deployment: Deployment, old: str, new: str) -> None:
    """Change the text of the sidecar's configuration."""
    text = deployment.config_map["data"]["sidelook.yaml"]
    assert old in text
    deployment.config_map["data"]["sidelook.yaml"] = text.replace(old, new)


def add_container(deployment: Deployment, **context: object) -> None:
    """Let another init container run, with these rights."""
    container = {"name": "other", "image": "other:1.0.0", "securityContext": context}
    spec(deployment)["initContainers"].append(container)


def context(deployment: Deployment) -> Manifest:
    """The sidecar's own security context."""
    part: Manifest = deployment.sidecar["securityContext"]
    return part


# {what is wrong: (how to break it, the rules that notice)}
BREAKAGES: dict[str, tuple[Callable[[Deployment], object], set[str]]] = {
    "restart policy forgotten": (
        lambda pod: pod.sidecar.pop("restartPolicy"),
        {"sidecar_is_native"},
    ),
    "ordinary sidecar": (
        make_ordinary,
        {"sidecar_is_native", "executor_is_named_as_spark_expects"},
    ),
    "other name for the executor": (
        lambda pod: spec(pod)["containers"][0].update(name="executor"),
        {"executor_is_named_as_spark_expects"},
    ),
    "root allowed": (
        lambda pod: spec(pod)["securityContext"].update(runAsNonRoot=False),
        {"nobody_is_root"},
    ),
    "no group for the socket": (
        lambda pod: spec(pod)["securityContext"].pop("fsGroup"),
        {"nobody_is_root"},
    ),
    "user overridden by the sidecar": (
        lambda pod: context(pod).update(runAsUser=0),
        {"nobody_is_root"},
    ),
    "root allowed by the sidecar": (
        lambda pod: context(pod).update(runAsNonRoot=False),
        {"nobody_is_root"},
    ),
    "group overridden by the sidecar": (
        lambda pod: context(pod).update(runAsGroup=0),
        {"nobody_is_root"},
    ),
    "group of root beside the own one": (
        lambda pod: spec(pod)["securityContext"].update(supplementalGroups=[0]),
        {"nobody_is_root"},
    ),
    "another container as root": (
        lambda pod: add_container(
            pod,
            runAsUser=0,
            allowPrivilegeEscalation=False,
            capabilities={"drop": ["ALL"]},
        ),
        {"nobody_is_root"},
    ),
    "another container with privileges": (
        lambda pod: add_container(pod, privileged=True),
        {"nobody_has_privileges"},
    ),
    "another container without a context": (
        lambda pod: spec(pod)["initContainers"].append({"name": "other", "image": "other:1.0.0"}),
        {"nobody_has_privileges"},
    ),
    "seccomp profile overridden": (
        lambda pod: context(pod).update(seccompProfile={"type": "Unconfined"}),
        {"nobody_has_privileges"},
    ),
    "right that nobody knows": (
        lambda pod: context(pod).update(procMount="Unmasked"),
        {"nobody_has_privileges"},
    ),
    "right of the pod that nobody knows": (
        lambda pod: spec(pod)["securityContext"].update(appArmorProfile={"type": "Unconfined"}),
        {"nobody_has_privileges"},
    ),
    "privileged sidecar": (
        lambda pod: context(pod).update(privileged=True),
        {"nobody_has_privileges"},
    ),
    "capability added": (
        lambda pod: context(pod)["capabilities"].update(add=["NET_ADMIN"]),
        {"nobody_has_privileges"},
    ),
    "escalation allowed to the executor": (
        lambda pod: spec(pod)["containers"][0]["securityContext"].update(
            allowPrivilegeEscalation=True
        ),
        {"nobody_has_privileges"},
    ),
    "no seccomp profile": (
        lambda pod: spec(pod)["securityContext"].pop("seccompProfile"),
        {"nobody_has_privileges"},
    ),
    "the node's network": (
        lambda pod: spec(pod).update(hostNetwork=True),
        {"host_is_out_of_reach"},
    ),
    "a port of the node": (
        lambda pod: pod.sidecar["ports"][0].update(hostPort=8816),
        {"host_is_out_of_reach"},
    ),
    "processes in sight of each other": (
        lambda pod: spec(pod).update(shareProcessNamespace=True),
        {"host_is_out_of_reach"},
    ),
    "writable root": (
        lambda pod: context(pod).update(readOnlyRootFilesystem=False),
        {"sidecar_cannot_write_its_root"},
    ),
    "token mounted": (
        lambda pod: spec(pod).pop("automountServiceAccountToken"),
        {"no_service_account_token"},
    ),
    "service links": (
        lambda pod: spec(pod).pop("enableServiceLinks"),
        {"no_service_links"},
    ),
    "liveness asks for readiness": (
        lambda pod: pod.sidecar["livenessProbe"]["httpGet"].update(path="/readyz"),
        {"probes_ask_the_health_port"},
    ),
    "startup does a lookup": (
        lambda pod: pod.sidecar["startupProbe"].update(exec={"command": ["true"]}, httpGet=None),
        {"probes_ask_the_health_port"},
    ),
    "hasty liveness": (
        lambda pod: pod.sidecar["livenessProbe"].update(failureThreshold=1),
        {"liveness_has_patience"},
    ),
    "hasty startup": (
        lambda pod: pod.sidecar["startupProbe"].update(failureThreshold=60),
        {"startup_has_time_for_a_load"},
    ),
    "hook before the stop": (
        lambda pod: pod.sidecar.update(lifecycle={"preStop": {"sleep": {"seconds": 5}}}),
        {"nothing_runs_before_the_stop"},
    ),
    "other health port": (
        lambda pod: replace_setting(pod, ":8816", ":8817"),
        {"health_port_is_the_configured_one"},
    ),
    "health on loopback": (
        lambda pod: replace_setting(pod, "0.0.0.0:", "127.0.0.1:"),
        {"health_port_is_the_configured_one"},
    ),
    "lookups by TCP": (
        lambda pod: replace_setting(pod, "http: null", "http: 127.0.0.1:8815"),
        {"lookups_come_through_the_socket_only"},
    ),
    "socket beside the volume": (
        lambda pod: replace_setting(pod, "/run/sidelook/", "/run/lookup/"),
        {"socket_folder_is_shared"},
    ),
    "socket volume only in the sidecar": (
        lambda pod: spec(pod)["containers"][0].update(volumeMounts=[]),
        {"socket_folder_is_shared"},
    ),
    "socket volume on disk": (
        lambda pod: pod.volume("sidelook-socket").update(emptyDir={}),
        {"socket_folder_is_shared"},
    ),
    "configuration of another name": (
        lambda pod: pod.config_map["metadata"].update(name="other"),
        {"configuration_is_mounted"},
    ),
    "secret readable by all": (
        lambda pod: pod.volume("sidelook-secret")["secret"].update(defaultMode=0o444),
        {"secret_belongs_to_the_sidecar_alone"},
    ),
    "secret of another name": (
        lambda pod: pod.volume("sidelook-secret")["secret"].update(secretName="other"),
        {"secret_is_the_one_that_is_made"},
    ),
    "secret without the key": (
        lambda pod: replace_setting(pod, "/dsn", "/address"),
        {"secret_is_the_one_that_is_made"},
    ),
    "secret in the executor": (
        lambda pod: spec(pod)["containers"][0]["volumeMounts"].append(
            {"name": "sidelook-secret", "mountPath": "/etc/sidelook-secret"}
        ),
        {"secret_belongs_to_the_sidecar_alone"},
    ),
    "secret in the executor, elsewhere": (
        lambda pod: spec(pod)["containers"][0]["volumeMounts"].append(
            {"name": "sidelook-secret", "mountPath": "/opt/secret"}
        ),
        {"secret_belongs_to_the_sidecar_alone"},
    ),
    "address in the configuration": (
        lambda pod: replace_setting(
            pod, "dsn_file: /etc/sidelook-secret/dsn", "dsn: postgresql://user@host/database"
        ),
        {"secret_belongs_to_the_sidecar_alone"},
    ),
    "image of nothing": (
        lambda pod: pod.sidecar.update(image=None),
        {"image_is_pinned"},
    ),
    "latest image": (
        lambda pod: pod.sidecar.update(image="sidelook:latest"),
        {"image_is_pinned"},
    ),
    "image without tag": (
        lambda pod: pod.sidecar.update(image="sidelook"),
        {"image_is_pinned"},
    ),
    "caches as large as the container": (
        lambda pod: replace_setting(pod, "memory: 512MiB", "memory: 768MiB"),
        {"memory_has_room_for_the_limit"},
    ),
}


def test_shipped_pod_breaks_no_rule() -> None:
    """The manifests in k8s/ obey every rule."""
    assert broken_rules(SHIPPED) == []


@pytest.mark.parametrize(("breakage", "noticed_by"), BREAKAGES.values(), ids=BREAKAGES)
def test_broken_pod_breaks_its_rule(
    breakage: Callable[[Deployment], object], noticed_by: set[str]
) -> None:
    """A fault in the manifests is noticed by the rule that forbids it, and by no other."""
    deployment = deepcopy(SHIPPED)

    breakage(deployment)

    assert set(broken_rules(deployment)) == noticed_by


def test_rule_that_fails_is_broken() -> None:
    """A pod of a form that no rule expects is told as such, rule by rule, and never passes."""
    deployment = deepcopy(SHIPPED)

    deployment.sidecar["livenessProbe"] = {"httpGet": {"path": "/livez", "port": "health"}}

    told = ["liveness_has_patience cannot be told: KeyError: 'periodSeconds'"]
    assert broken_rules(deployment) == told


def test_every_rule_has_a_breakage() -> None:
    """No rule is there that has not been seen to fail."""
    noticed = set().union(*(noticed_by for _, noticed_by in BREAKAGES.values()))

    assert noticed == {rule.__name__ for rule in RULES}


def test_image_tag_is_the_projects_version() -> None:
    """The template runs the version that it was released with."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert SHIPPED.sidecar["image"] == f"sidelook:{version}"
