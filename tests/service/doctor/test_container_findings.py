"""What a pod template means for the sidecar's container."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.config.settings import Settings
from service.doctor.deployment.container_findings import SidecarNeeds, container_findings
from service.doctor.finding import Finding
from tests.service.doctor.executor_pod import template
from tests.service.doctor.findings import SUBJECT

NEEDS = SidecarNeeds()


def bad(
    change: Callable[[Any, Any], object] = lambda _spec, _sidecar: None,
    needs: SidecarNeeds = NEEDS,
) -> list[Finding]:
    """What is not well after a change of the shipped template."""
    sidecar = template(change).sidecar
    assert sidecar is not None
    found = container_findings(SUBJECT, sidecar, needs)
    return [finding for finding in found if finding.severity != "ok"]


def test_shipped_container_is_well() -> None:
    """With the shipped limits, also where a table is loaded for ten minutes."""
    assert bad() == bad(needs=replace(NEEDS, longest_load_s=600.0)) == []


CHANGES: list[tuple[Callable[[Any, Any], object], str, str]] = [
    (lambda _, car: car["resources"].pop("limits"), "warning", "has no memory limit"),
    (lambda _, car: car["resources"]["limits"].update(memory="767Mi"), "warning", "limits.memory"),
    (lambda _, car: car["resources"]["limits"].update(memory="511Mi"), "error", "limits.memory"),
    (
        lambda _, car: car["resources"]["limits"].update(cpu="999m"),
        "warning",
        "is limited to 0.999",
    ),
    (lambda _, car: car.pop("startupProbe"), "warning", "has no startupProbe"),
    (
        lambda _, car: car["livenessProbe"]["httpGet"].update(port=9999),
        "error",
        "the livenessProbe",
    ),
    (lambda _, car: car["startupProbe"]["httpGet"].update(port="h"), "error", "the startupProbe"),
    (lambda _, car: car["args"].__setitem__(2, "/etc/x.yaml"), "warning", "no volume contains"),
    (lambda _, car: car.update(args=["--config=/x.yaml"]), "warning", "no volume contains"),
    (lambda _, car: car.update(lifecycle={"preStop": {"exec": {}}}), "warning", "has a preStop"),
]


@pytest.mark.parametrize(("change", "severity", "message"), CHANGES)
def test_each_fault_is_found(
    change: Callable[[Any, Any], object], severity: str, message: str
) -> None:
    """One change of the shipped template is one finding, with a remedy."""
    (finding,) = bad(change)

    assert (finding.severity, bool(finding.remedy)) == (severity, True)
    assert finding.message.startswith(message)


def test_a_whole_processor_is_enough() -> None:
    """Throttling hurts below one."""
    assert bad(lambda _, car: car["resources"]["limits"].update(cpu="1")) == []


@pytest.mark.parametrize(("longest_load_s", "count"), [(659.0, 0), (660.0, 1)])
def test_probe_must_outlast_loads(longest_load_s: float, count: int) -> None:
    """A sidecar that is killed while it loads would begin anew, for ever."""
    assert len(bad(needs=replace(NEEDS, longest_load_s=longest_load_s))) == count


def test_probes_need_a_listener() -> None:
    """Probes come by the pod's IP, where a listener on loopback is not."""
    (finding,) = bad(needs=replace(NEEDS, has_health=False))

    assert (finding.severity, "0.0.0.0:8816" in finding.remedy) == ("error", True)


def test_probes_must_ask_where_the_sidecar_answers() -> None:
    """The name of a port counts as its number; a closed port fails all three."""
    closed = bad(lambda _, car: car["ports"][0].update(containerPort=9999))
    other = bad(needs=replace(NEEDS, probe_ports=frozenset({9999})))
    by_number = bad(lambda _, car: car["readinessProbe"]["httpGet"].update(port=8816))

    assert ([each.severity for each in closed], len(other)) == (["error"] * 3, 3)
    assert by_number == []


def test_needs_come_from_the_configuration() -> None:
    """The longest wait of those tables that are held whole; loopback is no listener for probes."""
    source = {"kind": "parquet", "path": "/x"}
    whole = {"source": source, "key": ["k"], "cache": {"mode": "full", "warmup_max_wait": "5m"}}
    values = {
        "listen": {"health": "127.0.0.1:1"},
        "limits": {"memory": "64MiB"},
        "dimensions": {"a": whole, "b": {"source": source, "key": ["k"]}},
    }

    assert SidecarNeeds.of(Settings(values)) == SidecarNeeds(
        64 * 2**20, 300.0, has_health=False, probe_ports=frozenset()
    )
