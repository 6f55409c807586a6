"""Faults of a pod template: the shipped one has none, and each change of it has one finding."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.config.settings import Settings
from service.doctor.deployment.manifest import Manifest
from service.doctor.deployment.pod_template import (
    PodTemplate,
    SidecarNeeds,
    container_findings,
    pod_findings,
    volume_findings,
)
from service.doctor.finding import Finding
from tests.service.doctor.executor_pod import SOCKET, make_ordinary, template
from tests.service.doctor.findings import SUBJECT, severities

NEEDS = SidecarNeeds()
Change = Callable[[Any, Any], object]  # of the pod's specification and of the sidecar


def faults(
    change: Change = lambda _spec, _sidecar: None,
    *,
    needs: SidecarNeeds = NEEDS,
    socket: Path = SOCKET,
    checks_all: bool = True,
) -> list[Finding]:
    """The findings on the changed template and on its container, except those without a fault."""
    pod = template(change)
    found = [*pod_findings(SUBJECT, pod, socket=socket, checks_all=checks_all)]
    if pod.sidecar is not None:
        found += container_findings(SUBJECT, pod.sidecar, needs)
    found += volume_findings(SUBJECT, pod, needs)
    return [finding for finding in found if finding.severity != "ok"]


def test_shipped_template_has_no_fault() -> None:
    """The limits of the shipped template also fit a load of ten minutes."""
    assert faults() == faults(needs=replace(NEEDS, longest_load_s=600.0)) == []


def test_missing_sidecar_is_an_error() -> None:
    """A pod without a sidecar has one finding."""
    found = pod_findings(SUBJECT, PodTemplate(Manifest(), None), socket=None, checks_all=True)

    assert severities(found) == ["error"]


@pytest.mark.parametrize(("checks_all", "expected"), [(True, ["error"]), (False, ["warning"])])
def test_ordinary_container_may_fail_the_executor(*, checks_all: bool, expected: list[str]) -> None:
    """If Spark checks all containers, it is an error: its end fails the executor."""
    assert severities(faults(make_ordinary, checks_all=checks_all)) == expected


def _mounts(spec: Any) -> Any:  # noqa: ANN401
    return spec["containers"][0]["volumeMounts"]


def _run_as_others(spec: Any, sidecar: Any) -> None:  # noqa: ANN401
    del spec["securityContext"]["fsGroup"]
    sidecar["securityContext"]["runAsUser"] = 1000


def _set_socket(_spec: object, sidecar: Any) -> None:  # noqa: ANN401
    sidecar["env"] = [{"name": "SIDELOOK_LISTEN__UNIX", "value": "/tmp/s.sock"}]


def _move_volume(spec: Any, sidecar: Any) -> None:  # noqa: ANN401
    _set_socket(spec, sidecar)
    for each in (sidecar, *spec["containers"]):
        each["volumeMounts"][0]["mountPath"] = "/tmp"


def _limit(**limits: str) -> Change:
    return lambda _, sidecar: sidecar["resources"]["limits"].update(limits)


def _probe(name: str, port: object) -> Change:
    return lambda _, sidecar: sidecar[name]["httpGet"].update(port=port)


def _volume(**source: str) -> Change:
    return lambda spec, _: spec["volumes"][0].update(emptyDir=source)


NOT_MOUNTED = "container spark-kubernetes-executor does not mount"
CHANGES: list[tuple[Change, str, str]] = [
    (lambda _, sidecar: sidecar.pop("restartPolicy"), "error", "is an init container without"),
    (lambda spec, _: spec.update(hostNetwork=True), "error", "hostNetwork: true"),
    (lambda spec, _: spec.pop("enableServiceLinks"), "warning", "a Service named sidelook"),
    (lambda spec, _: _mounts(spec).clear(), "error", NOT_MOUNTED),
    (lambda spec, _: _mounts(spec)[0].update(name="another"), "error", NOT_MOUNTED),
    (_set_socket, "error", "no volume is mounted at /tmp, where the sidecar creates its socket"),
    (lambda spec, _: spec["volumes"].pop(0), "error", "there is no volume sidelook-socket"),
    (lambda _, car: car["volumeMounts"][0].update(readOnly=True), "error", "/run/sidelook is"),
    (_volume(), "warning", "volume sidelook-socket is not in memory"),
    (_volume(medium="Memory", sizeLimit="447Mi"), "warning", "volume sidelook-socket has 447Mi"),
    (lambda _, car: car["volumeMounts"][2].update(subPath="dsn"), "warning", "/etc/sidelook-secr"),
    (_run_as_others, "error", "the containers run as different users"),
    (lambda _, car: car["resources"].pop("limits"), "warning", "has no memory limit"),
    (_limit(memory="767Mi"), "warning", "limits.memory"),
    (_limit(memory="511Mi"), "error", "limits.memory"),
    (_limit(cpu="999m"), "warning", "is limited to 0.999 processors"),
    (lambda _, car: car.pop("startupProbe"), "warning", "has no startupProbe"),
    (_probe("livenessProbe", 9999), "error", "the livenessProbe uses port 9999"),
    (_probe("startupProbe", "h"), "error", "the startupProbe uses port h"),
    (lambda _, car: car["args"].__setitem__(2, "/etc/x.yaml"), "warning", "no volume contains"),
    (lambda _, car: car.update(args=["--config=/x.yaml"]), "warning", "no volume contains"),
    (lambda _, car: car.update(lifecycle={"preStop": {"exec": {}}}), "warning", "has a preStop"),
]


@pytest.mark.parametrize(("change", "severity", "message"), CHANGES)
def test_each_fault_is_found(change: Change, severity: str, message: str) -> None:
    """One change of the shipped template is one finding, with a remedy."""
    (finding,) = faults(change)

    assert (finding.severity, bool(finding.remedy)) == (severity, True)
    assert finding.message.startswith(message)


@pytest.mark.parametrize(
    "change",
    [
        _move_volume,
        _limit(cpu="1"),
        _probe("readinessProbe", 8816),
        _volume(medium="Memory", sizeLimit="1Gi"),
        _volume(medium="Memory"),
    ],
)
def test_fitting_changes_have_no_fault(change: Change) -> None:
    """A moved socket with its volume, a whole processor, a port's number, more memory are valid."""
    assert faults(change) == []


def test_private_caches_need_no_volume() -> None:
    """Without shared caches, the volume of the socket may be small, or on a disk."""
    needs = replace(NEEDS, shared_bytes=0)

    assert faults(_volume(), needs=needs) == faults(_volume(sizeLimit="1Mi"), needs=needs) == []


def test_image_overrides_the_file() -> None:
    """A socket path of the file without effect is a warning, and needs no volume."""
    (finding,) = faults(socket=Path("/tmp/s.sock"))

    assert (finding.severity, "has no effect" in finding.message) == ("warning", True)


@pytest.mark.parametrize(("longest_load_s", "count"), [(659.0, 0), (660.0, 1)])
def test_probe_must_outlast_loads(longest_load_s: float, count: int) -> None:
    """A sidecar that is killed while it loads would never finish."""
    assert len(faults(needs=replace(NEEDS, longest_load_s=longest_load_s))) == count


def test_probes_need_a_listener() -> None:
    """Probes use the pod's IP: a port that is closed, unused or on loopback fails all three."""
    (finding,) = faults(needs=replace(NEEDS, has_health=False))
    closed = faults(lambda _, car: car["ports"][0].update(containerPort=9999))
    other = faults(needs=replace(NEEDS, probe_ports=frozenset({9999})))

    assert (finding.severity, "0.0.0.0:8816" in finding.remedy) == ("error", True)
    assert severities(closed) == severities(other) == ["error"] * 3


def test_needs_come_from_the_configuration() -> None:
    """The longest load counts; a listener on loopback serves no probes; caches share one half."""
    source = {"kind": "parquet", "path": "/x"}
    whole = {"source": source, "key": ["k"], "cache": {"mode": "full", "warmup_max_wait": "5m"}}
    private = {"source": source, "key": ["k"], "cache": {"share": "off"}}
    none = {"source": source, "key": ["k"], "cache": {"mode": "none"}}
    values = {
        "listen": {"health": "127.0.0.1:1"},
        "limits": {"memory": "64MiB"},
        "dimensions": {"a": whole, "b": private, "c": none},
    }

    assert SidecarNeeds.of(Settings(values)) == SidecarNeeds(
        64 * 2**20,
        300.0,
        has_health=False,
        probe_ports=frozenset(),
        shared_bytes=(64 + 24) * 2**20,
    )
