"""The whole check: k8s/ passes it, and a folder with faults does not."""

import shutil
from pathlib import Path

import pytest

from tests.k8s import renderings
from tests.k8s.check import Finding, findings, main
from tests.k8s.manifests import FOLDER

pytestmark = pytest.mark.integration

# {file: (what stands there, what somebody wrote instead)}
DSN_FILE = "dsn_file: /etc/sidelook-secret/dsn"
FAULTS = {
    "base/network-policy-spark.yaml": ("ingress:", "ingres:"),
    "base/executor-pod/executor-pod-template.yaml": (
        "containerPort: 8816",
        'containerPort: "8816"',
    ),
    "components/monitoring/pod-monitor.yaml": ("coreos.com/v1", "coreos.com/v2"),
    "base/config-map.yaml": (DSN_FILE, "dsn: postgresql://user:password@host/database"),
    "base/network-policy-prometheus.yaml": ("metadata.name: monitoring", "metadata.name:"),
    "overlays/production/sidelook.yaml": ("timeout: 2s", "timeoutt: 2s"),
    "examples/kubeflow-spark-application.yaml": ("image: sidelook:0.1.0", "image:"),
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
    """Objects, the configuration in them, pods of any form, a stale file: each has its line."""
    code = main(broken_copy(tmp_path))

    told = capsys.readouterr().out
    assert code == 1
    assert "('ingres' was unexpected)" in told
    assert "containerPort: '8816' is not of type 'integer'" in told
    assert "sidelook.yaml: dimensions.customers.timeoutt: " in told
    assert "sidelook.yaml: dimensions.customers.source.dsn: holds a password" in told
    assert "matchLabels.kubernetes.io/metadata.name: null" in told
    assert "image_is_pinned" in told
    assert "has no PodMonitor of monitoring.coreos.com/v2" in told
    assert "FAULT k8s/chart with defaults: rules of the executor pod" in told
    assert "write it anew: kubectl kustomize k8s/overlays/production/executor-pod" in told


def test_object_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An object that stops a check is at fault, is named, and does not stop the others."""
    copy = tmp_path / "k8s"
    shutil.copytree(FOLDER, copy)
    job = copy / "examples" / "apache-spark-application.yaml"
    job.write_text("kind: SparkApplication\nmetadata: { name: broken }\n")

    assert main(copy) == 1

    told = capsys.readouterr().out
    assert f"FAULT k8s/examples/{job.name}: SparkApplication broken\n        cannot be read" in told
    assert "ok    k8s/base: rules of the executor pod" in told


def test_what_cannot_be_built_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kustomization that names a file that is not there is told, and nothing more is said."""
    shutil.copytree(FOLDER, tmp_path / "k8s")
    (tmp_path / "k8s" / "base" / "config-map.yaml").unlink()

    assert main(tmp_path / "k8s") == 1

    assert "config-map.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    "file",
    ["examples/apache-spark-application.yaml", "base/config-map.yaml", "secret.example.yaml"],
)
def test_file_that_is_no_yaml_fails_the_check(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, of whichever folder, is named with its fault, and nothing is thrown."""
    shutil.copytree(FOLDER, tmp_path / "k8s")
    (tmp_path / "k8s" / file).write_text("kind: [\n")

    assert main(tmp_path / "k8s") == 1

    told = capsys.readouterr().out
    assert told.startswith("cannot be rendered: ")
    assert Path(file).name in told


def test_refused_values_fail_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several files of values the one that the chart refuses is named."""
    hasty = tmp_path / "hasty.yaml"
    hasty.write_text("startupSeconds: 60\n")
    monkeypatch.setattr(renderings, "CHART_VALUES", [hasty])

    assert main(FOLDER) == 1

    assert capsys.readouterr().out.startswith("cannot be rendered: hasty.yaml: ")
