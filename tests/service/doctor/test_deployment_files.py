"""Deployment files: manifests, pod templates and Spark properties."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.kubernetes_check import kubernetes_version
from service.doctor.deployment.manifest import Manifest, quantity, read_manifests
from service.doctor.deployment.pod_template import (
    IMAGE_SOCKET,
    VARIABLE,
    ContainerSocket,
    PodTemplate,
    check_pod_template,
    container_socket,
    read_pod_template,
)
from service.doctor.deployment.spark_check import SparkConf, check_spark, read_spark_conf
from tests.service.doctor.executor_pod import SOCKET, TEMPLATE, make_ordinary, template
from tests.service.doctor.findings import SUBJECT, gathered, severities

K8S = TEMPLATE.parents[2]
POLICY = K8S / "base/network-policy-prometheus.yaml"
DOCKERFILE = K8S.parent / "Dockerfile"
KUBECTL = {"clientVersion": {"gitVersion": "v1.33.0"}}
ELSEWHERE = {"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *[("500m", 0.5), ("2", 2.0), ("1.5", 1.5), ("2u", 2e-6)],
        *[("768Mi", 768 * 2**20), ("1G", 1e9), ("1k", 1e3), ("1Ki", 1024.0)],
        *[("", None), ("much", None), ("1Q", None), ("mi", None), ("1mi", None)],
    ],
)
def test_quantities_have_units(text: str, amount: float | None) -> None:
    """Decimal and binary units are read; other texts are None."""
    assert quantity(text) == amount


def test_manifests_are_lenient(tmp_path: Path) -> None:
    """A missing part, or one of another type, is empty; documents without a mapping are skipped."""
    manifest = Manifest({"a": {"b": [1, {"c": 2}]}, "n": True, "t": None})
    file = tmp_path / "m.yaml"
    file.write_text("kind: A\n---\n---\n- x\n---\nkind: B\n")

    assert manifest.below("a", "b", "c") == Manifest()
    assert manifest.below("a").items("b") == [Manifest({"c": 2})]
    assert (manifest.number("n", 7), manifest.text("t"), manifest.items("a")) == (7, "", [])
    assert [each.get("kind") for each in read_manifests(file)] == ["A", "B"]


def test_unreadable_files_have_a_reason(tmp_path: Path) -> None:
    """A missing file, a Helm template, a file without a pod, and binary data are refused."""
    helm, job, binary = tmp_path / "helm", tmp_path / "job", tmp_path / "binary"
    helm.write_text("{{ x }}: [")
    job.write_text("kind: Job")
    binary.write_bytes(b"\xff")
    reasons = []
    for read, path in [
        (read_manifests, tmp_path / "none"),
        (read_manifests, helm),
        (read_pod_template, job),
        (read_spark_conf, tmp_path / "none"),
        (read_spark_conf, binary),
    ]:
        with pytest.raises(ConfigurationError) as caught:
            read(path)
        reasons.append(caught.value.detail)

    assert reasons == [
        "cannot be read: No such file or directory",
        "is not YAML; render a Helm chart first",
        "holds no Pod; name the file of podTemplateFile",
        "cannot be read: No such file or directory",
        "is not UTF-8 text (byte 0)",
    ]


def test_sidecar_is_found_in_its_pod() -> None:
    """The sidecar is known by its image; native is an init container that always restarts."""
    image = "registry.example:5000/data/sidelook:0.1.0"
    pod = {"spec": {"containers": [{"name": "x", "image": "y"}, {"name": "z", "image": image}]}}

    shipped, other = read_pod_template(TEMPLATE), PodTemplate.of(Manifest(pod))

    assert shipped.is_native
    assert [each.text("name") for each in shipped.executors] == ["spark-kubernetes-executor"]
    assert (other.sidecar and other.sidecar.text("name"), other.is_native) == ("z", False)
    assert not template(make_ordinary).is_native
    assert not template(lambda _, sidecar: sidecar.pop("restartPolicy")).is_native


async def test_pod_template_is_checked(tmp_path: Path) -> None:
    """The shipped template has no fault; a missing file and a pod without a sidecar are errors."""
    pod = tmp_path / "p.yaml"
    pod.write_text("kind: Pod\n")

    shipped = await gathered(check_pod_template(SUBJECT, file=TEMPLATE, socket=SOCKET))
    (missing,) = await gathered(check_pod_template(SUBJECT, file=tmp_path / "none"))
    (empty,) = await gathered(check_pod_template(SUBJECT, file=pod))

    assert set(severities(shipped)) == {"ok"}
    assert missing.message == "cannot be read: No such file or directory"
    assert severities([missing, empty]) == ["error", "error"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ContainerSocket(IMAGE_SOCKET, is_of_image=True)),
        ([{"value": "/s/s.sock"}], ContainerSocket(Path("/s/s.sock"))),
        ([{"value": "/a"}, {"value": "/b"}], ContainerSocket(Path("/b"))),
        ([{"value": ""}], ContainerSocket(None)),
        ([{"value": "null"}], ContainerSocket(None)),
        ([ELSEWHERE], ContainerSocket(None, is_known=False)),
    ],
)
def test_environment_decides_about_the_socket(
    entries: list[dict[str, Any]], expected: ContainerSocket
) -> None:
    """The last variable of the template counts, or else that of the Dockerfile."""
    named = [{"name": VARIABLE, **entry} for entry in entries]

    assert re.findall(rf"{VARIABLE}=(\S+)", DOCKERFILE.read_text()) == [str(IMAGE_SOCKET)]
    assert container_socket(Manifest({"env": [{"name": "PATH", "value": "/"}, *named]})) == expected


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


def test_properties_have_several_forms(tmp_path: Path) -> None:
    """A blank, `=` or `:` separates name and value; comments are ignored."""
    file = tmp_path / "spark.conf"
    file.write_text("# no\n! no\n\na  b c \nd=e=f\n g : h\n\tspark.x\t1\n")

    assert read_spark_conf(file).settings == {"a": "b c", "d": "e=f", "g": "h", "spark.x": "1"}


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
    """The tag of an image may be a version."""
    conf = SparkConf({"spark.kubernetes.container.image": image})

    assert (conf.image_version, conf.checks_all_containers) == (version, True)


async def test_shipped_properties_are_well() -> None:
    """Spark 4.2 isolates executors from Prometheus unless the shipped policy opens the port."""
    properties = K8S / "spark.conf"

    check = partial(check_spark, SUBJECT, file=properties, version=(4, 2), pod_template=TEMPLATE)
    opened = await gathered(check(network_policy=POLICY))
    (shut,) = [each for each in await gathered(check()) if each.severity != "ok"]

    assert set(severities(opened)) == {"ok"}
    assert (shut.severity, "--network-policy" in shut.remedy) == ("warning", True)


async def test_unreadable_properties_are_errors(tmp_path: Path) -> None:
    """Missing properties or policies are errors; the template has a check of its own."""
    properties, none = K8S / "spark.conf", tmp_path / "none"

    found = [
        set(severities(await gathered(results)))
        for results in (
            check_spark(SUBJECT, file=none),
            check_spark(SUBJECT, file=properties, network_policy=none),
            check_spark(SUBJECT, file=properties, version=(4, 1), pod_template=none),
        )
    ]

    assert found == [{"error"}, {"error"}, {"ok"}]
