"""Versions of Kubernetes."""

import json

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.kubernetes_check import kubernetes_version, version_finding
from tests.service.doctor.findings import MATTER

CLIENT = {"clientVersion": {"gitVersion": "v1.33.0"}}


@pytest.mark.parametrize(
    "text",
    [
        *["1.28", "v1.28.3", "v1.28.3+k3s1", "1.28-gke.4\n"],
        json.dumps({"major": "1", "gitVersion": "v1.28.15"}),
        json.dumps(CLIENT | {"serverVersion": {"gitVersion": "v1.28.1"}}),
    ],
)
def test_forms_of_versions_are_read(text: str) -> None:
    """As people write them, as the API server tells them, and as kubectl does."""
    assert kubernetes_version(text) == (1, 28)


@pytest.mark.parametrize("text", ["", "new", "1", "{", "[1]", '{"serverVersion": 1}'])
def test_other_texts_are_refused(text: str) -> None:
    """The refusal says how to ask."""
    with pytest.raises(ConfigurationError, match="kubectl version -o json"):
        kubernetes_version(text)


def test_kubectl_without_a_server_is_told() -> None:
    """That of kubectl alone says nothing of a cluster: its context leads to none."""
    with pytest.raises(ConfigurationError, match="kubectl reached no server; check its context"):
        kubernetes_version(json.dumps(CLIENT))


@pytest.mark.parametrize(
    ("version", "severity"), [((1, 28), "error"), ((1, 29), "ok"), ((2, 0), "ok")]
)
def test_native_sidecars_need_1_29(version: tuple[int, int], severity: str) -> None:
    """An older cluster drops the sidecar's restartPolicy in silence."""
    assert version_finding(MATTER, version).severity == severity
