"""Finding the sidecar in a pod."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.manifest import Manifest
from service.doctor.deployment.pod_template import PodTemplate, read_pod_template
from tests.service.doctor.executor_pod import TEMPLATE, make_ordinary, template


def test_shipped_template_has_a_native_sidecar() -> None:
    """It is found, and the executor's container is the other one."""
    found = read_pod_template(TEMPLATE)

    assert found.is_native
    assert [each.text("name") for each in found.executors] == ["spark-kubernetes-executor"]


def test_sidecar_is_found_by_its_image() -> None:
    """Whatever its name and registry are."""
    image = "registry.example:5000/data/sidelook:0.1.0"
    pod = {"spec": {"containers": [{"name": "x", "image": "y"}, {"name": "z", "image": image}]}}

    found = PodTemplate.of(Manifest(pod))

    assert (found.sidecar and found.sidecar.text("name"), found.is_native) == ("z", False)


def test_ordinary_container_is_not_native() -> None:
    """Nor is an init container that is to end."""
    assert not template(make_ordinary).is_native
    assert not template(lambda _, sidecar: sidecar.pop("restartPolicy")).is_native


@pytest.mark.parametrize(("text", "reason"), [("kind: Job", "holds no Pod"), ("a: [", "is not")])
def test_other_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    """A file without a pod is refused."""
    (tmp_path / "p.yaml").write_text(text)

    with pytest.raises(ConfigurationError, match=reason):
        read_pod_template(tmp_path / "p.yaml")
