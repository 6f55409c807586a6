"""What Spark is told."""

import pytest

from service.doctor.deployment.manifest import Manifest
from service.doctor.deployment.spark_check import (
    SparkConf,
    grace_finding,
    isolation_finding,
    lets_in,
    spark_findings,
)
from service.doctor.finding import Finding
from tests.service.doctor.findings import MATTER, severities

TEMPLATE = {"spark.kubernetes.executor.podTemplateFile": "t.yaml"}
STEP = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
EXCLUDED = {"spark.kubernetes.driver.pod.excludedFeatureSteps": f"a.B,{STEP}"}
POLICY = {
    "kind": "NetworkPolicy",
    "spec": {
        "podSelector": {"matchLabels": {"spark-role": "executor"}},
        "ingress": [{"ports": [{"port": 8816}]}],
    },
}


@pytest.mark.parametrize(
    ("settings", "containers", "expected"),
    [
        (TEMPLATE, None, ["ok"]),
        ({}, None, ["error", "ok"]),
        (TEMPLATE | {"spark.kubernetes.executor.podTemplateContainerName": "x"}, ["x"], ["ok"]),
        (
            TEMPLATE | {"spark.kubernetes.executor.podTemplateContainerName": "y"},
            ["x"],
            ["error", "ok"],
        ),
        (
            TEMPLATE | {"spark.kubernetes.executor.checkAllContainers": "false"},
            None,
            ["warning", "ok"],
        ),
    ],
)
def test_template_must_be_named(
    settings: dict[str, str], containers: list[str] | None, expected: list[str]
) -> None:
    """Without a template there is no sidecar; the container must be one of its own."""
    found = spark_findings(MATTER, SparkConf(settings), containers=containers)

    assert severities(found) == expected


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        *[("60s", "ok"), ("30", "ok"), ("1min", "ok"), ("1m", "ok")],
        *[("29s", "warning"), ("0", "warning"), ("soon", "error"), ("5x", "error")],
    ],
)
def test_grace_must_suffice_for_both(text: str, severity: str) -> None:
    """Executor and sidecar end one after the other, within one period."""
    assert grace_finding(MATTER, text).severity == severity


def isolation(
    settings: dict[str, str], version: tuple[int, int] | None, *policies: Manifest
) -> Finding:
    """Whether Prometheus gets in."""
    conf = SparkConf(settings)
    return isolation_finding(MATTER, conf, version=version, policies=policies, port=8816)


@pytest.mark.parametrize(
    ("version", "severity"), [((4, 1), "ok"), ((4, 2), "warning"), (None, "warning")]
)
def test_spark_isolates_from_4_2_on(version: tuple[int, int] | None, severity: str) -> None:
    """An older one lets everybody in; of an unknown one it is told how to say which it is."""
    finding = isolation({}, version)

    assert finding.severity == severity
    assert ("--spark" in finding.remedy) == (version is None)


def test_isolation_can_be_opened() -> None:
    """By leaving Spark's own policy out, or by another one beside it."""
    assert isolation(EXCLUDED, (4, 2)).severity == "ok"
    assert isolation({}, (4, 2), Manifest(POLICY)).severity == "ok"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"kind": "Service"}, False),
        ({"spec": {"ingress": [{"from": []}]}}, True),
        ({"spec": {"ingress": [{"ports": [{"port": 80}]}]}}, False),
        ({"spec": {"ingress": []}}, False),
        (
            {"spec": {"podSelector": {"matchLabels": {"spark-role": "driver"}}, "ingress": [{}]}},
            False,
        ),
    ],
)
def test_policy_must_open_the_port(*, change: dict[str, object], expected: bool) -> None:
    """Of executors, and either all ports or this one."""
    assert lets_in(Manifest(POLICY | change), 8816) == expected
