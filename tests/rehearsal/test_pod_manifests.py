"""What the rehearsal takes from the manifests is what stands there."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.k8s.manifests import BASE, POD_FILE
from tests.rehearsal.pod_manifests import PodManifests
from tests.rehearsal.steps import StepFailed

SHIPPED = PodManifests.read(BASE)


def changed() -> PodManifests:
    """A copy that may be broken."""
    return replace(SHIPPED, pod=deepcopy(SHIPPED.pod))


def test_shipped_manifests_are_read() -> None:
    """Group, port, grace, socket and the secret's file of the sidecar's configuration."""
    name, socket = SHIPPED.socket_volume()
    ((secret, files),) = SHIPPED.secrets("postgresql://").items()

    assert (SHIPPED.group, SHIPPED.health_port, SHIPPED.grace_s > 0) == (185, 8816, True)
    assert name in [volume["name"] for volume in SHIPPED.volumes]
    assert socket == SHIPPED.settings["listen"]["unix"]
    assert secret
    assert list(files.values()) == ["postgresql://"]


def test_file_that_is_no_yaml_fails_the_step(tmp_path: Path) -> None:
    """Which file it is, and why: no traceback for who gave the folder."""
    (tmp_path / "executor-pod").mkdir()
    (tmp_path / "executor-pod" / POD_FILE).write_text("kind: [\n")

    with pytest.raises(StepFailed, match=rf"{POD_FILE}: not YAML: "):
        PodManifests.read(tmp_path)


def test_pod_without_group_is_read() -> None:
    """It may be left out: what follows from that is the rehearsal's to show."""
    pod = changed()
    del pod.pod["spec"]["securityContext"]

    assert pod.group is None


def test_init_container_that_ends_is_no_sidecar() -> None:
    """Without `restartPolicy: Always` it would have to end before the executor starts."""
    pod = changed()
    del pod.sidecar["restartPolicy"]

    with pytest.raises(StepFailed, match="restartPolicy is not Always"):
        _ = pod.sidecar


def test_executor_without_the_socket_is_told() -> None:
    """The folder of the socket is none of its mounts."""
    pod = changed()
    pod.executor["volumeMounts"] = []

    with pytest.raises(StepFailed, match="the executor mounts no volume at"):
        pod.socket_volume()
