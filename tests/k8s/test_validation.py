"""Objects that the Kubernetes API would refuse, or silently cut, are told with what is wrong."""

from pathlib import Path

import pytest

from tests.k8s.manifests import (
    BASE,
    EXAMPLES,
    FOLDER,
    JOBS,
    POD_FILE,
    POD_TEMPLATE,
    Manifest,
    read_manifest,
)
from tests.k8s.validation import VERSIONS, faults_of, template_of

pytestmark = pytest.mark.integration

MONITORING = FOLDER / "components" / "monitoring"
POLICY = read_manifest(BASE / "network-policy-prometheus.yaml")
MONITOR = read_manifest(MONITORING / "pod-monitor.yaml")
RULE = read_manifest(MONITORING / "prometheus-rule.yaml")
KUBEFLOW = read_manifest(EXAMPLES / "kubeflow-spark-application.yaml")
APACHE = read_manifest(EXAMPLES / "apache-spark-application.yaml")
OBJECTS = [POLICY, MONITOR, RULE, KUBEFLOW, APACHE]
# {what is wrong: (the object with the fault, what is told)}
FAULTS: dict[str, tuple[Manifest, str]] = {
    "policy: unknown field": (
        {**POLICY, "spec": {**POLICY["spec"], "ingres": []}},
        "Kubernetes 1.29: spec: Additional properties are not allowed ('ingres' was unexpected)",
    ),
    "policy: wrong type": (
        {**POLICY, "spec": {**POLICY["spec"], "policyTypes": "Ingress"}},
        "Kubernetes 1.29: spec.policyTypes: 'Ingress' is not of type 'array', 'null'",
    ),
    "policy: other group": (
        {**POLICY, "apiVersion": "networking.io/v1"},
        "Kubernetes 1.29: apiVersion: 'networking.io/v1' is not one of ['networking.k8s.io/v1']",
    ),
    "policy: old version": (
        {**POLICY, "apiVersion": "extensions/v1beta1"},
        "Kubernetes 1.29 has no NetworkPolicy of extensions/v1beta1",
    ),
    "policy: senders of nothing": (
        {**POLICY, "spec": {**POLICY["spec"], "ingress": [{"from": None}]}},
        "spec.ingress.0.from: null, which the API takes for left out",
    ),
    "policy: label of nothing": (
        {**POLICY, "metadata": {"name": "one", "labels": {"a/b": None}}},
        "metadata.labels.a/b: null, which the API takes for left out",
    ),
    "monitor: unknown field": (
        {**MONITOR, "spec": {**MONITOR["spec"], "endpoints": []}},
        "spec: Additional properties are not allowed ('endpoints' was unexpected)",
    ),
    "monitor: wrong type": (
        {**MONITOR, "spec": {**MONITOR["spec"], "podTargetLabels": "spark-app-name"}},
        "spec.podTargetLabels: 'spark-app-name' is not of type 'array'",
    ),
    "monitor: without selector": (
        {**MONITOR, "spec": {"podMetricsEndpoints": []}},
        "spec: 'selector' is a required property",
    ),
    "monitor: other version": (
        {**MONITOR, "apiVersion": "monitoring.coreos.com/v2"},
        "Kubernetes 1.29 has no PodMonitor of monitoring.coreos.com/v2",
    ),
    "rule: unknown field": (
        {**RULE, "spec": {"groups": [{"name": "one", "rule": []}]}},
        "spec.groups.0: Additional properties are not allowed ('rule' was unexpected)",
    ),
    "Kubeflow: unknown field": (
        {**KUBEFLOW, "spec": {**KUBEFLOW["spec"], "pyFiles": "enrich.py"}},
        "spec: Additional properties are not allowed ('pyFiles' was unexpected)",
    ),
    "Kubeflow: wrong type": (
        {**KUBEFLOW, "spec": {**KUBEFLOW["spec"], "sparkVersion": 4.3}},
        "spec.sparkVersion: 4.3 is not of type 'string'",
    ),
    "Apache: unknown field": (
        {**APACHE, "spec": {**APACHE["spec"], "image": "enrich:1.0.0"}},
        "spec: Additional properties are not allowed ('image' was unexpected)",
    ),
    "Apache: wrong type": (
        {**APACHE, "spec": {**APACHE["spec"], "sparkConf": {"spark.executor.cores": 2}}},
        "spec.sparkConf.spark.executor.cores: 2 is not of type 'string'",
    ),
}


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda each: each["apiVersion"])
def test_shipped_object_has_no_fault(manifest: Manifest) -> None:
    """What stands in k8s/ passes, so that the faults below are those of the test."""
    assert faults_of(manifest) == []


@pytest.mark.parametrize(("manifest", "told"), FAULTS.values(), ids=FAULTS)
def test_fault_is_told_with_its_place(manifest: Manifest, told: str) -> None:
    """Whoever wrote the fault reads where it is and what is wrong."""
    assert faults_of(manifest)[0] == told


def test_both_ends_of_the_versions_are_asked() -> None:
    """A fault that each version sees is told for the oldest and for the newest one."""
    faults = faults_of({**POLICY, "spec": []})

    assert [fault.split(":")[0] for fault in faults] == [f"Kubernetes {each}" for each in VERSIONS]
    assert VERSIONS[0] == "1.29"


def misspell(pod: Manifest) -> None:
    """Give the sidecar a field that no container has."""
    pod["spec"]["initContainers"][0]["restartPolicies"] = "Always"


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_pod_template_of_a_job_is_read(job: Path) -> None:
    """A fault in the template of executors is found where the operator's schema has only a hole."""
    manifest = read_manifest(job)

    misspell(template_of(manifest))

    assert any("'restartPolicies' was unexpected" in fault for fault in faults_of(manifest))


def test_pod_template_in_a_config_map_is_read() -> None:
    """What a ConfigMap carries as text is held against the schema of a pod."""
    text = POD_TEMPLATE.read_text().replace("restartPolicy: Always", "restartPolicies: Always")
    carrier = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    faults = faults_of({**carrier, "data": {POD_FILE: text}})

    assert any("'restartPolicies' was unexpected" in fault for fault in faults)
