"""The manifest check passes k8s/ as it is, and refuses a folder with faults."""

import shutil
from pathlib import Path

import pytest

from tools.k8s.check import Finding, findings, main
from tools.k8s.manifests import FOLDER, parse_yaml
from tools.k8s.validation import policy_faults

pytestmark = pytest.mark.full

BASE_POD = "base/executor-pod/executor-pod-template.yaml"
MONITORING = "components/monitoring"
PROMETHEUS = "base/network-policy-prometheus.yaml"
KUBEFLOW = "examples/kubeflow-spark-application.yaml"
APACHE = "examples/apache-spark-application.yaml"
DSN_FILE = "dsn_file: /etc/sidelook-secret/dsn"
# (file, text, its replacement, what is reported)
FAULTS = [
    ("base/network-policy-spark.yaml", "ingress:", "ingres:", "('ingres' was unexpected)"),
    (BASE_POD, "containerPort: 8816", 'containerPort: "8816"', "'8816' is not of type 'integer'"),
    (BASE_POD, "Filesystem: true", "Filesystem: false", "sidecar_root_is_read_only"),
    (PROMETHEUS, "metadata.name: monitoring", "metadata.name:", "metadata.name: null"),
    (f"{MONITORING}/pod-monitor.yaml", "coreos.com/v1", "coreos.com/v2", "has no PodMonitor of"),
    (f"{MONITORING}/prometheus-rule.yaml", "rules:", "rule:", "('rule' was unexpected)"),
    ("base/config-map.yaml", DSN_FILE, "dsn: postgresql://u:p@host/db", "dsn: holds a password"),
    ("overlays/production/sidelook.yaml", "timeout: 2s", "timeoutt: 2s", "customers.timeoutt: "),
    (KUBEFLOW, "image: sidelook:0.1.0", "image:", "image_is_pinned"),
    (KUBEFLOW, "restartPolicy: Always", "restartPolicies: Always", "('restartPolicies' was"),
    (KUBEFLOW, "  type: Python\n", "  type: 3\n", "spec.type: 3 is not"),
    (APACHE, "pyFiles:", "pyFile:", "('pyFile' was unexpected)"),
    (
        "chart/templates/_executor-pod.tpl",
        "failureThreshold: 3",
        "failureThreshold: 1",
        "liveness_tolerates_half_a_minute",
    ),
]
STALE = "render it again: kubectl kustomize k8s/overlays/production/executor-pod"


@pytest.fixture(scope="module")
def shipped() -> list[Finding]:
    """The findings in k8s/ as it is."""
    return list(findings())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of k8s/ to break."""
    return Path(shutil.copytree(FOLDER, tmp_path / "k8s"))


def test_shipped_manifests_have_no_fault(shipped: list[Finding]) -> None:
    """Each object of base, components, overlays, chart and examples is valid."""
    assert [finding for finding in shipped if finding.faults] == []


def test_every_pod_is_checked(shipped: list[Finding]) -> None:
    """The check reaches the executor pods of all places in k8s/."""
    pods = {finding.place for finding in shipped if finding.title == "rules of the executor pod"}

    assert pods == {
        *("k8s/base", "k8s/everything", "k8s/overlays/development", "k8s/overlays/production"),
        *(f"k8s/chart with {case}" for case in ("defaults", "production", "without-operators")),
        *(f"k8s/examples/{operator}-spark-application.yaml" for operator in ("apache", "kubeflow")),
    }


def test_faulty_manifests_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Schemas, configurations, policies, pods and stale renderings: each fault has its line."""
    for file, right, wrong, _ in FAULTS:
        text = (copy / file).read_text()
        assert right in text, (file, right)
        (copy / file).write_text(text.replace(right, wrong))

    code = main(copy)

    report = capsys.readouterr().out
    assert code == 1
    assert [fault for *_, fault in FAULTS if fault not in report] == []
    assert STALE in report


@pytest.mark.parametrize(
    "senders",
    [
        "from: []",
        "from: [{}]",
        "from: [{namespaceSelector: {}}]",
        "from: [{namespaceSelector: {matchLabels: {}}}]",
        "from: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0}}]",
        "ports: [{port: 8816}]",
    ],
)
def test_open_policy_is_refused(senders: str) -> None:
    """An ingress rule without named senders admits all of them, and so does one of addresses."""
    ingress = parse_yaml(f"ingress: [{{from: [{{podSelector: {{}}}}]}}, {{{senders}}}]")

    faults = policy_faults({"kind": "NetworkPolicy", "spec": ingress})

    assert faults == ["spec.ingress.1 admits more than the pods that it names"]
