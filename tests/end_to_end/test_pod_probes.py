"""The pod's own command and probes against a real sidecar whose database is down."""

import sys
from collections.abc import Iterator

import pytest

from tools.k8s.manifests import CONFIG_MAP, POD_TEMPLATE, Manifest, read_manifest
from tools.processes.sidecar_process import SidecarProcess, clean_environ, free_port

SIDECAR: Manifest = read_manifest(POD_TEMPLATE)["spec"]["initContainers"][0]
SETTINGS: str = read_manifest(CONFIG_MAP)["data"]["sidelook.yaml"]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """The container's command with the ConfigMap's text, and no database where it should be."""
    folder = tmp_path_factory.mktemp("pod")
    configuration, dsn = folder / "sidelook.yaml", folder / "dsn"
    configuration.write_text(SETTINGS.replace("/etc/sidelook-secret/dsn", str(dsn)))
    dsn.write_text(f"postgresql://sidelook:secret@127.0.0.1:{free_port()}/shop")
    dsn.chmod(0o440)
    command = [sys.executable, "-m", "service", *SIDECAR["args"][:-1], str(configuration)]
    process = SidecarProcess(folder, command, environ=clean_environ())
    with process.running(until=probe_path("startupProbe")):
        yield process


def probe_path(name: str) -> str:
    """Which route the kubelet would ask."""
    path: str = SIDECAR[name]["httpGet"]["path"]
    return path


def test_startup_needs_no_database(sidecar: SidecarProcess) -> None:
    """The executor is not held back by a database that is down."""
    assert sidecar.health(probe_path("startupProbe")).status == 200


def test_liveness_needs_no_database(sidecar: SidecarProcess) -> None:
    """A database that is down does not get the sidecar killed."""
    assert sidecar.health(probe_path("livenessProbe")).status == 200


def test_readiness_tells_of_the_database(sidecar: SidecarProcess) -> None:
    """A dimension that was never described cannot take lookups."""
    assert sidecar.health(probe_path("readinessProbe")).status == 503


def test_lookups_tell_of_the_database(sidecar: SidecarProcess) -> None:
    """A lookup ends with an error that another try may mend, and never as a missing row."""
    reply = sidecar.post("/v1/dimensions/customers/lookup", {"keys": [1], "timeout_ms": 500})

    problem = reply.json()
    assert (reply.status, problem["code"], problem["retryable"]) == (
        503,
        "backend_unavailable",
        True,
    )
    assert "secret" not in reply.text


def test_health_port_gives_no_rows(sidecar: SidecarProcess) -> None:
    """The listener that everybody can reach by the pod's IP serves no data."""
    assert sidecar.health("/v1/dimensions").status == 404
