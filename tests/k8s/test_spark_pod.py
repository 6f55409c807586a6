"""Spark keeps what the template says: the pod that it would send is the pod that we mean."""

from pathlib import Path

import kubernetes_validate
import pytest

from tests.k8s.manifests import (
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
from tests.k8s.pod_rules import Deployment, broken_rules
from tests.k8s.spark_pod import executor_pod

pytestmark = pytest.mark.integration

MONITOR = FOLDER / "components" / "monitoring" / "pod-monitor.yaml"
SELECTING = [MONITOR, *sorted(BASE.glob("network-policy-*.yaml"))]
TEMPLATE_FILE = "spark.kubernetes.executor.podTemplateFile"


@pytest.fixture(scope="module")
def pod() -> Manifest:
    """The executor pod that Spark makes with the shipped settings."""
    return executor_pod({**read_spark_settings(SPARK_SETTINGS), TEMPLATE_FILE: str(POD_TEMPLATE)})


def test_spark_keeps_the_templates_rules(pod: Manifest) -> None:
    """After Spark has filled in its part, the pod still obeys every rule."""
    deployment = Deployment(pod, read_manifest(CONFIG_MAP), read_manifest(SECRET))

    assert broken_rules(deployment) == []


def test_spark_makes_a_valid_pod(pod: Manifest) -> None:
    """What Spark would send passes the strict schema of the newest Kubernetes."""
    newest = kubernetes_validate.latest_version()

    assert kubernetes_validate.validate(pod, newest, strict=True) == newest[:4]


@pytest.mark.parametrize("path", SELECTING, ids=lambda path: path.stem)
def test_selectors_find_the_pod(path: Path, pod: Manifest) -> None:
    """Policies and monitors select by labels that the pod has after Spark has added its own."""
    spec = read_manifest(path)["spec"]

    wanted = (spec.get("podSelector") or spec["selector"])["matchLabels"]

    assert wanted.items() <= pod["metadata"]["labels"].items()


def test_monitored_labels_are_sparks(pod: Manifest) -> None:
    """What the PodMonitor puts on each series is known of each executor."""
    names = read_manifest(MONITOR)["spec"]["podTargetLabels"]

    assert set(names) <= pod["metadata"]["labels"].keys()


def test_grace_period_comes_from_spark(pod: Manifest) -> None:
    """Spark overwrites the template's grace period, so it stands among the Spark settings."""
    assert "terminationGracePeriodSeconds" not in read_manifest(POD_TEMPLATE)["spec"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 60


def test_spark_adds_itself_to_its_container(pod: Manifest) -> None:
    """The container named as Spark expects is the one that becomes the executor."""
    (executor,) = pod["spec"]["containers"]

    assert executor["image"] == "spark:4.3.0"
    assert executor["args"] == ["executor"]
    assert pod["spec"]["restartPolicy"] == "Never"
