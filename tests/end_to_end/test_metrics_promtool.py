"""The embedded default, asked as the README asks it, and its metrics held against promtool."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.observability.collector import Collector
from service.observability.prometheus_observer import Exposition
from service.resources.memory_guard import MemoryStatistics, PressureLevel
from tests.service.observability.sidecar_statistics import FOLLOWED
from tools.debian import ToolUnavailable, debian_tool
from tools.processes.sidecar_process import ROOT, SERVE, SidecarProcess

pytestmark = pytest.mark.real_path

LOOKUP = "/v1/dimensions/airports/lookup"
PATIENT = {"timeout_ms": 20_000}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """The sidecar with the Parquet example, without any database."""
    command = [*SERVE, "--config", str(ROOT / "examples" / "parquet.yaml")]
    process = SidecarProcess(tmp_path_factory.mktemp("sidecar"), command)
    with process.running():
        yield process


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own checker; skipped, with the reason, where it cannot be had."""
    try:
        return debian_tool("prometheus", "promtool")
    except ToolUnavailable as error:
        pytest.skip(f"promtool cannot be had: {error}")


def check_metrics(promtool: Path, metrics: str) -> "subprocess.CompletedProcess[str]":
    """What promtool says of a scrape."""
    command = [str(promtool), "check", "metrics"]
    return subprocess.run(command, input=metrics, capture_output=True, text=True, check=False)


def test_lookup_answers_in_request_order(sidecar: SidecarProcess) -> None:
    """A hit, a missing key and a duplicate come back in their places, with rows where there are."""
    answer = sidecar.post(LOOKUP, {"keys": ["JFK", "???", "JFK"], **PATIENT}).json()

    first, missing, second = answer["rows"]
    assert answer["outcomes"] == ["fetched", "missing", "fetched"]
    assert (first["name"], missing) == ("John F Kennedy Intl", None)
    assert second == first


def test_second_lookup_hits_the_cache(sidecar: SidecarProcess) -> None:
    """What was fetched once is answered from the cache, negatives included."""
    keys = {"keys": ["LGA", "!!!"], **PATIENT}
    sidecar.post(LOOKUP, keys)

    answer = sidecar.post(LOOKUP, keys).json()

    assert answer["outcomes"] == ["hit", "missing"]


def test_metrics_pass_promtool(sidecar: SidecarProcess, promtool: Path) -> None:
    """After lookups, both listeners' /metrics are without a fault or a lint finding."""
    sidecar.post(LOOKUP, {"keys": ["EWR", "???"], **PATIENT})
    metrics = sidecar.health("/metrics").text

    checked = check_metrics(promtool, metrics)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert 'sidelook_lookups_total{dimension="airports",outcome="fetched"}' in metrics


def test_refresh_metrics_pass_promtool(promtool: Path) -> None:
    """So are those of dimensions that are followed and held whole, with all their samples."""
    collector = Collector(
        dimensions=dict,
        refreshes=lambda: {"planes": FOLLOWED},
        channels=list,
        watermarks_ms=dict,
        undescribed=dict,
        uses_index=dict,
        lag_s=lambda: 0.0,
        memory=lambda: MemoryStatistics(0, 0.0, PressureLevel.NONE),
        version="1.2.3",
        certificate=None,
    )
    metrics = Exposition([collector]).render().decode()

    checked = check_metrics(promtool, metrics)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert 'sidelook_dimension_loads_total{dimension="planes",result="ok"} 2.0' in metrics


def test_promtool_notices_a_bad_name(promtool: Path) -> None:
    """The checker is really asked: a counter without `_total` is a finding."""
    metrics = "# HELP lookups Lookups.\n# TYPE lookups counter\nlookups 1\n"

    checked = check_metrics(promtool, metrics)

    assert checked.returncode == 3
    assert checked.stderr == 'lookups counter metrics should have "_total" suffix\n'


def test_metrics_are_the_same_through_the_socket(sidecar: SidecarProcess) -> None:
    """The socket shows the metrics, too, with the same names."""
    names = [
        {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        for text in (sidecar.get("/metrics").text, sidecar.health("/metrics").text)
    ]

    assert names[0] == names[1] != set()
