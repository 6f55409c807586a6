"""The whole check: k8s/ passes it, and a folder with faults does not."""

import shutil
from pathlib import Path

import pytest

from tests.k8s.check import Finding, findings, main
from tests.k8s.manifests import FOLDER

pytestmark = pytest.mark.integration

# {file: (what stands there, what somebody wrote instead)}
FAULTS = {
    "base/network-policy-spark.yaml": ("ingress:", "ingres:"),
    "base/executor-pod/executor-pod-template.yaml": (
        "containerPort: 8816",
        'containerPort: "8816"',
    ),
    "components/monitoring/pod-monitor.yaml": ("coreos.com/v1", "coreos.com/v2"),
    "chart/templates/_executor-pod.tpl": ("failureThreshold: 3", "failureThreshold: 1"),
}


@pytest.fixture(scope="module")
def shipped() -> list[Finding]:
    """What is found in k8s/ as it stands."""
    return list(findings())


def broken_copy(folder: Path) -> Path:
    """A copy of k8s/ with a fault of each sort."""
    copy = folder / "k8s"
    shutil.copytree(FOLDER, copy)
    for name, (right, wrong) in FAULTS.items():
        text = (copy / name).read_text()
        assert right in text
        (copy / name).write_text(text.replace(right, wrong))
    return copy


def test_shipped_manifests_have_no_fault(shipped: list[Finding]) -> None:
    """Each object of base, components, overlays, chart and examples is right."""
    assert [finding for finding in shipped if finding.faults] == []


def test_nothing_is_left_out(shipped: list[Finding]) -> None:
    """The check reaches every place where manifests stand, and the pods in all of them."""
    pods = {finding.place for finding in shipped if finding.title == "rules of the executor pod"}

    assert pods == {
        *("k8s/base", "k8s/everything", "k8s/overlays/development", "k8s/overlays/production"),
        *(f"k8s/chart with {case}" for case in ("defaults", "production", "without-operators")),
        *(f"k8s/examples/{operator}-spark-application.yaml" for operator in ("apache", "kubeflow")),
    }


def test_faults_are_told_and_fail_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown field, wrong type, wrong version, hasty probe and a stale file: each has its line."""
    code = main(broken_copy(tmp_path))

    told = capsys.readouterr().out
    assert code == 1
    assert "('ingres' was unexpected)" in told
    assert "containerPort: '8816' is not of type 'integer'" in told
    assert "has no PodMonitor of monitoring.coreos.com/v2" in told
    assert "FAULT k8s/chart with defaults: rules of the executor pod" in told
    assert "write it anew: kubectl kustomize k8s/overlays/production/executor-pod" in told


def test_what_cannot_be_built_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kustomization that names a file that is not there is told, and nothing more is said."""
    shutil.copytree(FOLDER, tmp_path / "k8s")
    (tmp_path / "k8s" / "base" / "config-map.yaml").unlink()

    assert main(tmp_path / "k8s") == 1

    assert "config-map.yaml" in capsys.readouterr().out
