"""The sidecar process from its start to its exit code, with a database that does not answer."""

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.end_to_end.sidecars import configured, lookup, parquet, postgres
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.sidecar_process import (
    SidecarProcess,
)

pytestmark = pytest.mark.real_path

CONTAINER = read_manifest(POD_TEMPLATE)["spec"]["initContainers"][0]
# {probe of the pod: its response without a database}
PROBES = {"startupProbe": 200, "livenessProbe": 200, "readinessProbe": 503}


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    """Customers from a file, orders from a database that accepts connections and never answers."""
    rows = pa.table({"id": pa.array([7], pa.int64()), "name": ["Ada"]})
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        dsn = f"postgresql://user:secret@127.0.0.1:{server.getsockname()[1]}/shop"
        customers, orders = parquet(tmp_path, "customers", rows, "id"), postgres(dsn, "orders")
        dimensions = {"customers": customers, "orders": orders}
        yield configured(tmp_path, dimensions, allow_inline_secrets=True)


def test_serves_until_told_to_stop(sidecar: SidecarProcess) -> None:
    """It serves at a socket for owner and group, exits with 0, and leaves no socket behind."""
    with sidecar.running(until="/livez"):
        mode = stat.S_IMODE(sidecar.socket.stat().st_mode)
        answer = lookup(sidecar, "customers", 5000).json()

    assert (mode, answer["outcomes"]) == (0o660, ["fetched"])
    assert not sidecar.socket.exists()


def test_probes_outlast_the_database(sidecar: SidecarProcess) -> None:
    """Without a database startup and liveness succeed, and lookups fail with a retryable error."""
    with sidecar.running(until="/livez"):
        probed = {
            name: sidecar.health(CONTAINER[name]["httpGet"]["path"]).status for name in PROBES
        }
        rows = sidecar.health("/v1/dimensions").status
        reply = lookup(sidecar, "orders", 500)

    problem = reply.json()
    assert (probed, rows) == (PROBES, 404)  # the health listener serves no data
    assert (reply.status, problem["code"], problem["retryable"]) == (
        *(503, "backend_unavailable", True),
    )
    assert "secret" not in reply.text
