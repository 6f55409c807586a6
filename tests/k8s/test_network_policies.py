"""Prometheus reaches the metrics, Spark's pods reach each other, and nobody else reaches them."""

import pytest

from tests.k8s.kustomization import build_kustomization
from tests.k8s.manifests import POD_TEMPLATE as TEMPLATE
from tests.k8s.manifests import Manifest, read_manifest
from tests.k8s.network_policies import Pod, admits, open_rules
from tests.k8s.renderings import complete_copy
from tests.k8s.spark_pod import application_policy

pytestmark = pytest.mark.integration

HEALTH, BLOCKS = 8816, 7079


def spark_pod(role: str, application: str = "app-1") -> Pod:
    """A pod of Spark with the template's labels, and those that Spark adds."""
    own = read_manifest(TEMPLATE)["metadata"]["labels"] if role == "executor" else {}
    return Pod("spark", {**own, "spark-role": role, "spark-app-selector": application})


EXECUTOR = spark_pod("executor")
PROMETHEUS = Pod("monitoring", {"app.kubernetes.io/name": "prometheus"})
# {who asks: (the sender, the port)}
SENDERS = {
    "Prometheus": (PROMETHEUS, HEALTH),
    "Prometheus, another port": (PROMETHEUS, BLOCKS),
    "Prometheus's neighbour": (Pod("monitoring", {}), HEALTH),
    "driver": (spark_pod("driver"), BLOCKS),
    "executor": (spark_pod("executor"), BLOCKS),
    "another application": (spark_pod("executor", "app-2"), BLOCKS),
    "a stranger in the namespace": (Pod("spark", {}), HEALTH),
    "a stranger elsewhere": (Pod("web", {"spark-role": "driver"}), BLOCKS),
}
SPARK = {"driver", "executor"}
# {what makes it open: the rule}
OPEN: dict[str, Manifest] = {
    "no senders": {"ports": [{"port": HEALTH}]},
    "senders of nothing": {"from": None},
    "empty list of senders": {"from": []},
    "sender of nothing": {"from": [{}]},
    "all namespaces": {"from": [{"namespaceSelector": {}}]},
    "all labels": {"from": [{"namespaceSelector": {"matchLabels": {}}}]},
    "an address": {"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]},
}


@pytest.fixture(scope="module")
def policies() -> dict[str, list[Manifest]]:
    """The policies of base and production, and Spark's own."""
    with complete_copy() as copy:
        built = {
            "base": build_kustomization(copy / "base"),
            "production": build_kustomization(copy / "overlays" / "production"),
        }
    made = {
        name: [each for each in manifests if each["kind"] == "NetworkPolicy"]
        for name, manifests in built.items()
    }
    return {**made, "Spark": [application_policy()]}


def admitted(policies: list[Manifest]) -> set[str]:
    """Who is heard by an executor."""
    return {
        name
        for name, (sender, port) in SENDERS.items()
        if admits(policies, EXECUTOR, sender=sender, port=port)
    }


def test_spark_alone_shuts_prometheus_out(policies: dict[str, list[Manifest]]) -> None:
    """What Spark 4.2 and later bring lets in the pods of the application, and no others."""
    assert admitted(policies["Spark"]) == SPARK


def test_base_lets_prometheus_and_spark_in(policies: dict[str, list[Manifest]]) -> None:
    """Where Spark brings no policy, drivers and executors of all applications reach each other."""
    wanted = {"Prometheus", "Prometheus's neighbour", *SPARK, "another application"}

    assert admitted(policies["base"]) == wanted


def test_production_keeps_applications_apart(policies: dict[str, list[Manifest]]) -> None:
    """With Spark's own policy, production adds Prometheus itself, and nobody else."""
    assert admitted([*policies["production"], *policies["Spark"]]) == {"Prometheus", *SPARK}


def test_production_alone_would_stop_spark(policies: dict[str, list[Manifest]]) -> None:
    """Without Spark's own policy, executors would not hear their driver: why base has a second."""
    assert admitted(policies["production"]) == {"Prometheus"}


@pytest.mark.parametrize("senders", OPEN.values(), ids=OPEN)
def test_open_rule_is_told(senders: Manifest) -> None:
    """A rule that names nobody lets everybody in, as does one that names any address."""
    policy = {"spec": {"ingress": [{"from": [{"podSelector": {}}]}, senders]}}

    assert open_rules(policy) == ["spec.ingress.1 lets in more than pods that it names"]


def test_outgoing_traffic_is_left_alone(policies: dict[str, list[Manifest]]) -> None:
    """No policy says anything of egress, so databases stay within reach."""
    ours = [*policies["base"], *policies["production"]]

    assert [each["spec"]["policyTypes"] for each in ours] == [["Ingress"]] * 3
    assert not any("egress" in each["spec"] for each in ours)


def test_drivers_are_nobodys_business(policies: dict[str, list[Manifest]]) -> None:
    """The policies select executors, so that drivers hear all as before."""
    stranger, port = SENDERS["a stranger in the namespace"]
    sent = [*policies["base"], *policies["production"]]

    assert admits(sent, spark_pod("driver"), sender=stranger, port=port)
