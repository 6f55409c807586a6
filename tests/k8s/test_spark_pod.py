"""Spark's own pod and NetworkPolicy, with the shipped template, settings and policies."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import kubernetes_validate
import pytest

from tests.k8s.spark_pod import application_policy, executor_pod
from tools.k8s.manifests import (
    BASE,
    CONFIG_MAP,
    FOLDER,
    POD_TEMPLATE,
    SECRET,
    SPARK_SETTINGS,
    Manifest,
    read_manifest,
    read_spark_settings,
)
from tools.k8s.pod_rules import Deployment, broken_rules
from tools.k8s.renderers import build_kustomization
from tools.k8s.renderings import complete_copy

pytestmark = pytest.mark.full

MONITOR = FOLDER / "components" / "monitoring" / "pod-monitor.yaml"
SELECTING = [MONITOR, *sorted(BASE.glob("network-policy-*.yaml"))]
TEMPLATE_FILE = "spark.kubernetes.executor.podTemplateFile"
LABELS: dict[str, str] = read_manifest(POD_TEMPLATE)["metadata"]["labels"]
HEALTH, BLOCKS = 8816, 7079
NAMESPACE_NAME = "kubernetes.io/metadata.name"  # Kubernetes labels each namespace with its name


@pytest.fixture(scope="module")
def pod() -> Manifest:
    """The executor pod that Spark builds with the shipped settings."""
    return executor_pod({**read_spark_settings(SPARK_SETTINGS), TEMPLATE_FILE: str(POD_TEMPLATE)})


@pytest.fixture(scope="module")
def policies() -> dict[str, list[Manifest]]:
    """The policies of base and of production, and Spark's own."""
    with complete_copy() as copy:
        built = {
            "base": build_kustomization(copy / "base"),
            "production": build_kustomization(copy / "overlays" / "production"),
        }
    policies = {
        name: [each for each in manifests if each["kind"] == "NetworkPolicy"]
        for name, manifests in built.items()
    }
    return {**policies, "Spark": [application_policy()]}


def test_spark_builds_a_good_pod(pod: Manifest) -> None:
    """Spark's pod is valid for the newest Kubernetes, and obeys every rule."""
    newest = kubernetes_validate.latest_version()
    deployment = Deployment(pod, read_manifest(CONFIG_MAP), read_manifest(SECRET))

    assert kubernetes_validate.validate(pod, newest, strict=True) == newest[:4]
    assert broken_rules(deployment) == []


@pytest.mark.parametrize("path", SELECTING, ids=lambda path: path.stem)
def test_selectors_match_the_pod(path: Path, pod: Manifest) -> None:
    """Policies and monitors select by labels of Spark's pod."""
    spec = read_manifest(path)["spec"]

    selected = (spec.get("podSelector") or spec["selector"])["matchLabels"]

    assert selected.items() <= pod["metadata"]["labels"].items()
    assert set(spec.get("podTargetLabels", ())) <= pod["metadata"]["labels"].keys()


def test_spark_sets_its_container_and_grace_period(pod: Manifest) -> None:
    """Spark completes the named container, and overwrites the grace period of the template."""
    (executor,) = pod["spec"]["containers"]

    assert (executor["image"], executor["args"]) == ("spark:4.3.0", ["executor"])
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 60
    assert "terminationGracePeriodSeconds" not in read_manifest(POD_TEMPLATE)["spec"]


@dataclass(frozen=True, slots=True)
class Pod:
    """The parts of a pod that policies select by."""

    namespace: str
    labels: dict[str, str]


def admits(policies: Iterable[Manifest], pod: Pod, *, sender: Pod, port: int) -> bool:
    """Whether the pod admits the sender; the policies are all of the pod's namespace.

    A pod that no policy selects admits all senders.
    """
    selecting = [each for each in policies if _selects(each["spec"]["podSelector"], pod.labels)]
    rules = [rule for each in selecting for rule in each["spec"].get("ingress", [])]
    return not selecting or any(_admits(rule, pod, sender, port) for rule in rules)


def _admits(rule: Manifest, pod: Pod, sender: Pod, port: int) -> bool:
    ports = [each["port"] for each in rule.get("ports", [])]
    peers = rule.get("from") or []
    is_peer = not peers or any(_is_peer(peer, pod, sender) for peer in peers)
    return is_peer and (not ports or port in ports)


def _is_peer(peer: Manifest, pod: Pod, sender: Pod) -> bool:
    if "namespaceSelector" in peer:
        is_near = _selects(peer["namespaceSelector"], {NAMESPACE_NAME: sender.namespace})
    else:
        is_near = sender.namespace == pod.namespace
    return is_near and _selects(peer.get("podSelector", {}), sender.labels)


def _selects(selector: Manifest, labels: dict[str, str]) -> bool:
    matched = all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    )
    return matched and all(_matches(each, labels) for each in selector.get("matchExpressions", []))


def _matches(expression: Manifest, labels: dict[str, str]) -> bool:
    if expression["operator"] != "In":
        message = f"no NetworkPolicy here uses the operator {expression['operator']}"
        raise NotImplementedError(message)
    return labels.get(expression["key"]) in expression["values"]


def spark(role: str, application: str = "app-1") -> Pod:
    """A pod of Spark with the labels of the template and of Spark."""
    own = LABELS if role == "executor" else {}
    return Pod("spark", {**own, "spark-role": role, "spark-app-selector": application})


PROMETHEUS = Pod("monitoring", {"app.kubernetes.io/name": "prometheus"})
SENDERS = {  # {name: (sender, port of the executor)}
    "Prometheus": (PROMETHEUS, HEALTH),
    "Prometheus, another port": (PROMETHEUS, BLOCKS),
    "another pod of monitoring": (Pod("monitoring", {}), HEALTH),
    "driver": (spark("driver"), BLOCKS),
    "executor": (spark("executor"), BLOCKS),
    "another application": (spark("executor", "app-2"), BLOCKS),
    "another pod of the namespace": (Pod("spark", {}), HEALTH),
    "another namespace": (Pod("web", {"spark-role": "driver"}), BLOCKS),
}


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        # Spark 4.2 and later admit the pods of the application only.
        (["Spark"], {"driver", "executor"}),
        # Without Spark's policy, drivers and executors of all applications reach each other.
        (
            ["base"],
            {
                "Prometheus",
                "another pod of monitoring",
                "driver",
                "executor",
                "another application",
            },
        ),
        (["production", "Spark"], {"Prometheus", "driver", "executor"}),
        # Alone it would separate executors from their driver, so base has a second policy.
        (["production"], {"Prometheus"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_policies_admit_prometheus_and_spark(
    origins: list[str], expected: set[str], policies: dict[str, list[Manifest]]
) -> None:
    """Executors receive requests of Prometheus and of their application, and no others."""
    applied = [policy for origin in origins for policy in policies[origin]]

    admitted = {
        name
        for name, (sender, port) in SENDERS.items()
        if admits(applied, spark("executor"), sender=sender, port=port)
    }

    assert admitted == expected


def test_policies_leave_egress_and_drivers_alone(policies: dict[str, list[Manifest]]) -> None:
    """The shipped policies restrict the ingress of executors only."""
    shipped = [*policies["base"], *policies["production"]]
    sender, port = SENDERS["another pod of the namespace"]

    assert [each["spec"]["policyTypes"] for each in shipped] == [["Ingress"]] * 3
    assert not any("egress" in each["spec"] for each in shipped)
    assert admits(shipped, spark("driver"), sender=sender, port=port)
