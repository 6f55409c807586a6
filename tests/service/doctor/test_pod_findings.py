"""What a pod template means for the pod."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.doctor.deployment.manifest import Manifest
from service.doctor.deployment.pod_template import PodTemplate, pod_findings
from service.doctor.finding import Finding
from tests.service.doctor.executor_pod import SOCKET, make_ordinary, template
from tests.service.doctor.findings import SUBJECT, severities


def bad(template: PodTemplate, *, socket: Path = SOCKET, checks_all: bool = True) -> list[Finding]:
    """What is not well."""
    found = pod_findings(SUBJECT, template, socket=socket, checks_all=checks_all)
    return [finding for finding in found if finding.severity != "ok"]


def test_shipped_template_is_well() -> None:
    """What users copy has no finding."""
    assert bad(template()) == []


def test_missing_sidecar_is_an_error() -> None:
    """A pod without one is told where it belongs."""
    assert severities(bad(PodTemplate(Manifest(), None))) == ["error"]


@pytest.mark.parametrize(("checks_all", "expected"), [(True, ["error"]), (False, ["warning"])])
def test_ordinary_container_may_fail_the_executor(*, checks_all: bool, expected: list[str]) -> None:
    """It does so where Spark looks at all containers; else it is only too late, or too early."""
    assert severities(bad(template(make_ordinary), checks_all=checks_all)) == expected


def _unmount_executor(spec: Any, _sidecar: object) -> None:  # noqa: ANN401
    spec["containers"][0]["volumeMounts"] = []


def _run_as_others(spec: Any, sidecar: Any) -> None:  # noqa: ANN401
    del spec["securityContext"]["fsGroup"]
    sidecar["securityContext"]["runAsUser"] = 1000


def _mount_another(spec: Any, _sidecar: object) -> None:  # noqa: ANN401
    spec["containers"][0]["volumeMounts"][0]["name"] = "another"


CHANGES: list[tuple[Callable[[Any, Any], object], str, str]] = [
    (lambda _, sidecar: sidecar.pop("restartPolicy"), "error", "is an init container without"),
    (lambda spec, _: spec.update(hostNetwork=True), "error", "hostNetwork: true"),
    (lambda spec, _: spec.pop("enableServiceLinks"), "warning", "a Service named sidelook"),
    (_unmount_executor, "error", "container spark-kubernetes-executor does not mount"),
    (_mount_another, "error", "container spark-kubernetes-executor does not mount"),
    (lambda spec, _: spec["volumes"].pop(0), "error", "there is no volume sidelook-socket"),
    (lambda _, car: car["volumeMounts"][0].update(readOnly=True), "error", "/run/sidelook is"),
    (lambda _, car: car["volumeMounts"][2].update(subPath="dsn"), "warning", "/etc/sidelook-secr"),
    (_run_as_others, "error", "the containers run as different users"),
]


@pytest.mark.parametrize(("change", "severity", "message"), CHANGES)
def test_each_fault_is_found(
    change: Callable[[Any, Any], object], severity: str, message: str
) -> None:
    """One change of the shipped template is one finding, with a remedy."""
    (finding,) = bad(template(change))

    assert (finding.severity, bool(finding.remedy)) == (severity, True)
    assert finding.message.startswith(message)


def _set_socket(_spec: object, sidecar: Any) -> None:  # noqa: ANN401
    sidecar["env"] = [{"name": "SIDELOOK_LISTEN__UNIX", "value": "/tmp/s.sock"}]


def _move_volume(spec: Any, sidecar: Any) -> None:  # noqa: ANN401
    _set_socket(spec, sidecar)
    for each in (sidecar, *spec["containers"]):
        each["volumeMounts"][0]["mountPath"] = "/tmp"


def test_socket_must_be_on_a_volume() -> None:
    """A socket elsewhere than where the volume is cannot be shared."""
    (finding,) = bad(template(_set_socket))

    assert finding.message == "no volume is mounted at /tmp, where the sidecar creates its socket"


def test_environment_of_the_container_counts() -> None:
    """A template that moves socket and volume is well, whatever the file has."""
    assert bad(template(_move_volume)) == []


def test_image_beats_the_file() -> None:
    """A path in the file that has no effect is told as such, and no volume is missed there."""
    (finding,) = bad(template(), socket=Path("/tmp/s.sock"))

    assert (finding.severity, "has no effect" in finding.message) == ("warning", True)
