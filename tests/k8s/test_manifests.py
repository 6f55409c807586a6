"""Every manifest is strictly what the Kubernetes API takes, from 1.29 to the newest known."""

from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest

from tests.k8s.manifests import (
    BASE,
    POD_TEMPLATE,
    ROOT,
    SECRET,
    SPARK_SETTINGS,
    Manifest,
    ManifestUnreadable,
    parse_manifests,
    parse_yaml,
    read_manifest,
    read_spark_settings,
)

MANIFESTS = [SECRET, POD_TEMPLATE, *sorted(BASE.glob("[!k]*.yaml"))]
VERSIONS = ["1.29", "1.33", kubernetes_validate.latest_version()]


def sidecar(pod: Manifest) -> Manifest:
    """The pod's only init container."""
    (container,) = pod["spec"]["initContainers"]
    found: Manifest = container
    return found


# {what is wrong: how to break the pod}
BREAKAGES: dict[str, Callable[[Manifest], object]] = {
    "misspelt field": lambda pod: sidecar(pod)["securityContext"].update(
        readOnlyRootFileSystem=True
    ),
    "misplaced field": lambda pod: sidecar(pod).update(fsGroup=185),
    "port as text": lambda pod: sidecar(pod)["ports"][0].update(containerPort="8816"),
    "probe without a port": lambda pod: sidecar(pod)["livenessProbe"]["httpGet"].pop("port"),
    "container without a name": lambda pod: sidecar(pod).pop("name"),
    "list instead of a mapping": lambda pod: pod["spec"].update(securityContext=[]),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_fits_kubernetes_strictly(path: Path, version: str) -> None:
    """No unknown field and no wrong type, for every supported version of Kubernetes."""
    assert kubernetes_validate.validate(read_manifest(path), version, strict=True) == version[:4]


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_broken_manifest_is_refused(breakage: Callable[[Manifest], object]) -> None:
    """A pod that the API would refuse, or silently cut, does not pass the check."""
    pod = read_manifest(POD_TEMPLATE)

    breakage(pod)

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


def test_old_kubernetes_knows_no_sidecar() -> None:
    """Before native sidecars the field is unknown: dropped in silence, so 1.29 is the least."""
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicy"):
        kubernetes_validate.validate(read_manifest(POD_TEMPLATE), "1.27", strict=True)


def test_file_modes_are_octal() -> None:
    """YAML is read as Kubernetes reads it: a mode that begins with 0 is octal."""
    assert parse_yaml("mode: 0440") == {"mode": 0o440}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"kind: [\n", "not YAML: while parsing a flow node"),
        (b"kind: Pod\n---\nkind: Pod\n", "not YAML: expected a single document"),
        (b"\xff\xfe", "not YAML: 'utf-8' codec"),
        (b"", "no manifest, which is a mapping of names to values"),
        (b"- kind: Pod\n", "no manifest, which is a mapping of names to values"),
    ],
)
def test_file_without_a_manifest_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    """Whatever stands in it instead, one line says which file it is, and why."""
    file = tmp_path / "pod.yaml"
    file.write_bytes(content)

    with pytest.raises(ManifestUnreadable) as caught:
        read_manifest(file)

    assert str(caught.value).startswith(f"{file}: {told}")
    assert "\n" not in str(caught.value)


def test_each_document_is_octal() -> None:
    """What stands behind `---` is read like what stands before; an empty document is none."""
    text = "---\n# nothing\n---\nmode: 0440\n---\nmode: 0400\n"

    assert parse_manifests(text) == [{"mode": 0o440}, {"mode": 0o400}]


def test_spark_settings_name_the_shipped_template() -> None:
    """The properties file is complete and names what stands beside it."""
    assert read_spark_settings(SPARK_SETTINGS) == {
        "spark.kubernetes.executor.podTemplateFile": str(POD_TEMPLATE.relative_to(ROOT)),
        "spark.kubernetes.executor.podTemplateContainerName": "spark-kubernetes-executor",
        "spark.kubernetes.executor.terminationGracePeriodSeconds": "60s",
    }
