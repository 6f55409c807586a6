"""Files and versions of a deployment: manifests, properties of Spark, and Kubernetes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.pod_template import (
    IMAGE_SOCKET,
    part,
    parts,
    read_manifests,
    read_pod_template,
)
from service.doctor.deployment.spark_check import (
    Deployment,
    check_executors,
    image_version,
    kubernetes_version,
    read_spark_conf,
)
from tests.service.doctor.findings import SUBJECT

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"
SHIPPED = Deployment(
    pod_template=K8S / "base/executor-pod/executor-pod-template.yaml",
    spark_conf=K8S / "spark.conf",
    spark=(4, 2),
    network_policy=K8S / "base/network-policy-prometheus.yaml",
)
ORDINARY = "kind: Pod\nspec: {containers: [{name: sidelook}]}\n"
KUBECTL = {"clientVersion": {"gitVersion": "v1.33.0"}}


def faults(deployment: Deployment) -> list[str]:
    """Check, severity and message of the findings that are not OK."""
    found = [each for each in check_executors(SUBJECT, deployment) if each.severity != "ok"]
    return [f"{each.check} {each.severity.value}: {each.message}" for each in found]


def test_shipped_files_have_no_fault() -> None:
    """Spark 4.2 isolates executors from Prometheus unless the shipped policy opens the port."""
    (shut,) = faults(replace(SHIPPED, network_policy=None))

    assert faults(SHIPPED) == []
    assert shut.startswith("spark warning: Spark 4.2 allows traffic between pods")


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    """Each file has one finding with its check; without properties, the template is checked."""
    none = tmp_path / "none"
    pod = replace(SHIPPED, spark_conf=None)

    missing = "error: cannot be read: No such file or directory"
    assert faults(replace(SHIPPED, spark_conf=none)) == [f"spark {missing}"]
    assert faults(replace(SHIPPED, network_policy=none)) == [f"spark {missing}"]
    assert faults(replace(SHIPPED, pod_template=none)) == [f"pod template {missing}"]
    assert (faults(pod), faults(replace(pod, pod_template=none))) == (
        [],
        [f"pod template {missing}"],
    )


@pytest.mark.parametrize(("setting", "severity"), [("False", "warning"), ("", "error")])
def test_template_follows_the_properties(tmp_path: Path, setting: str, severity: str) -> None:
    """An ordinary container is a warning if Spark's properties exclude it, else an error."""
    conf, pod = tmp_path / "spark.conf", tmp_path / "pod.yaml"
    line = f"spark.kubernetes.executor.checkAllContainers {setting}\n"
    conf.write_text(f"{line}spark.kubernetes.executor.podTemplateFile={pod}\n")
    pod.write_text(ORDINARY)

    fault, *_ = faults(Deployment(pod_template=pod, spark_conf=conf, spark=(4, 1)))

    assert fault.startswith(f"pod template {severity}: is an ordinary container")


@pytest.mark.parametrize(
    ("read", "content", "reason"),
    [
        (read_pod_template, b"{{ x }}: [", "is not YAML; render a Helm chart first"),
        (read_pod_template, b"kind: Job", "holds no Pod; name the file of podTemplateFile"),
        (read_spark_conf, b"\xff", "is not UTF-8 text (byte 0)"),
    ],
)
def test_unfit_content_has_a_reason(
    tmp_path: Path, read: object, content: bytes, reason: str
) -> None:
    """A Helm template, a file without a pod, and binary data are refused."""
    file = tmp_path / "file"
    file.write_bytes(content)

    assert callable(read)
    with pytest.raises(ConfigurationError) as caught:
        read(file)
    assert caught.value.detail.startswith(reason)


def test_manifests_are_lenient(tmp_path: Path) -> None:
    """Of several documents, those of the kind count; missing parts, and others, are empty."""
    file = tmp_path / "m.yaml"
    file.write_text("kind: A\n---\n---\n- x\n---\nkind: Pod\nspec: {containers: [1, {a: b}]}\n")

    (pod,) = read_manifests(file, "Pod")
    assert parts(pod, "spec", "containers") == [{"a": "b"}]
    assert (parts(pod, "spec", "containers", "a"), parts(pod, "kind")) == ([], [])
    assert (part(pod, "kind", "x"), part(pod, "x", "y")) == (None, None)


def test_image_has_the_default_socket() -> None:
    """Without a variable in the template, that of the Dockerfile counts."""
    found = re.findall(r"SIDELOOK_LISTEN__UNIX=(\S+)", (ROOT / "Dockerfile").read_text())

    assert found == [IMAGE_SOCKET]


def test_properties_have_several_forms(tmp_path: Path) -> None:
    """A blank, `=` or `:` separates name and value; comments are ignored."""
    file = tmp_path / "spark.conf"
    names = ["a  b c ", "d=e=f", " g : h", "\tx\t1"]
    lines = [each.replace(each.strip(), f"spark.kubernetes.{each.strip()}") for each in names]
    file.write_text("\n".join(["# no", "! no", "", "spark.other 1", *lines]))

    assert read_spark_conf(file) == {"a": "b c", "d": "e=f", "g": "h", "x": "1"}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("apache/spark:4.2.0", (4, 2)),
        ("registry:5000/spark:v4.10-python", (4, 10)),
        ("registry:5000/spark", None),
        ("spark:latest", None),
    ],
)
def test_tag_has_the_version_of_spark(image: str, version: tuple[int, int] | None) -> None:
    """The tag of an image may be a version; that of the executor's image counts first."""
    assert image_version({"container.image": image}) == version
    both = {"container.image": "spark:3.5", "executor.container.image": image}
    assert image_version(both) == version


@pytest.mark.parametrize(
    "text",
    [
        *["1.28", "v1.28.3", "v1.28.3+k3s1", "1.28-gke.4\n"],
        json.dumps({"major": "1", "gitVersion": "v1.28.15"}),
        json.dumps(KUBECTL | {"serverVersion": {"gitVersion": "v1.28.1"}}),
    ],
)
def test_version_of_a_cluster_is_read(text: str) -> None:
    """Users, the API server and kubectl write the version in different forms."""
    assert kubernetes_version(text) == (1, 28)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *[
            (text, "not a server version; give one such as 1.31, or pipe: kubectl version -o js")
            for text in ("", "new", "1", "{", "[1]", '{"serverVersion": 1}')
        ],
        (json.dumps(KUBECTL), "kubectl reached no server; check its context (kubectl config "),
    ],
)
def test_other_versions_are_refused(text: str, fault: str) -> None:
    """The remedy fits the text; kubectl's own version says nothing about a cluster."""
    with pytest.raises(ConfigurationError) as caught:
        kubernetes_version(text)

    assert caught.value.detail.startswith(fault)
