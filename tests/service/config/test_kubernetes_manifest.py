"""Manifests in the place of a configuration."""

from pathlib import Path
from typing import Any

import pytest

from service.config.yaml_document import manifest_fault, read_yaml_document

SHIPPED = Path(__file__).parents[3] / "k8s/base/config-map.yaml"
FILE = Path("my maps.yaml")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_config_map_is_told_with_a_command() -> None:
    """The command takes the configuration out of the very file, without a cluster."""
    assert manifest_fault(SHIPPED, read_yaml_document(SHIPPED).values) == (
        f"{SHIPPED}: is a Kubernetes ConfigMap; check what stands below its data.sidelook.yaml: "
        f"kubectl patch --local -f {SHIPPED} -p '{{}}' "
        r"-o 'jsonpath={.data.sidelook\.yaml}' > config-map.plain.yaml"
    )


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"a.txt": "", "b.yml": ""}, "b.yml"),
        ({"driver.yaml": "", "sidelook.yaml": ""}, "sidelook.yaml"),
        ({"a.txt": ""}, "sidelook.yaml"),
        (None, "sidelook"),
    ],
)
def test_file_of_ours_is_named(data: Any, name: str) -> None:  # noqa: ANN401
    """The key that looks like YAML is meant; else the usual one is named."""
    fault = manifest_fault(FILE, {**CONFIG_MAP, "data": data}) or ""

    assert f"below its data.{name}" in fault
    assert "-f 'my maps.yaml' " in fault


def test_command_harms_nothing() -> None:
    """It writes over no manifest, and what a key holds is no command."""
    data = {"a; rm -rf x.yml": ""}
    fault = manifest_fault(Path("sidelook.yaml"), {**CONFIG_MAP, "data": data}) or ""

    assert fault.endswith(r" -o 'jsonpath={.data.a; rm -rf x\.yml}' > sidelook.plain.yaml")


def test_other_manifests_have_no_configuration() -> None:
    """Only its kind is told of any other."""
    fault = manifest_fault(FILE, {"apiVersion": "v1", "kind": "Pod"})

    assert fault == "my maps.yaml: is a Kubernetes Pod, not a configuration"


@pytest.mark.parametrize("values", [{}, {"kind": "ConfigMap"}, {"apiVersion": "v1", "kind": 5}])
def test_other_files_are_no_manifests(values: dict[str, Any]) -> None:
    """Whatever else is wrong with a file is told by other checks."""
    assert manifest_fault(FILE, values) is None
