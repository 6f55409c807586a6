"""Spark standalone with a sidecar on each node, by the files of `examples/deploy`."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.standalone_spark import StandaloneSpark, standalone_spark
from tests.service.tls.certificates import Authority, authority
from tools.processes.postgres_server import running_postgres
from tools.processes.sidecar_process import (
    LOOKUPS,
    ROOT,
    SERVE,
    SidecarFigures,
    SidecarProcess,
    clean_environ,
    free_port,
)
from tools.processes.until import until

DEPLOY = ROOT / "examples" / "deploy"
RECORDS, FILES, CUSTOMERS = 1_000_000, 8, 200_000
ANSWERED = 20_000  # keys, before the kill
DSN = "SIDELOOK_DIMENSIONS__CUSTOMERS__SOURCE__DSN_FILE"
JOB_TIMEOUT_S = 270.0
Ended: TypeAlias = "subprocess.CompletedProcess[str]"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Spark, its nodes' sidecars, and the database with the customers."""

    spark: StandaloneSpark
    dsn: Path
    sidecars: list[SidecarProcess]

    @property
    def events(self) -> Path:
        """The folder with the records."""
        return self.spark.folder / "events"

    def submit(self, output: str) -> Ended:
        """Run the example's job to its end, with the sidecars of the nodes."""
        socket = f"unix://{self.spark.mount_point}/sidelook.sock"
        return self.run("standalone", output, "--sidecar", socket)

    def run(self, way: str, output: str, *options: str, **environ: str) -> Ended:
        """Run the job to its end by the script of a way to deploy."""
        return subprocess.run(
            [DEPLOY / way / "submit.sh", self.events, self.spark.folder / output, *options],
            env={
                **self.spark.environ(),
                "MASTER": self.spark.master,
                "CLIENT_PYTHON": sys.executable,
                **environ,
            },
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )

    def output(self, name: str) -> pa.Table:
        """The enriched records, by line."""
        return pq.read_table(self.spark.folder / name).sort_by("line")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A master, two workers, and a sidecar for each, which are not started."""
    with tempfile.TemporaryDirectory(prefix="sidelook-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with running_postgres() as server, standalone_spark(folder, workers=2) as spark:
            database = server.new_database()
            database.execute(
                "CREATE TABLE customers (id int8 PRIMARY KEY, name text, segment text, tier int4)",
                "INSERT INTO customers SELECT n, 'customer ' || n, 's' || n % 7, n % 5"
                f" FROM generate_series(0, {CUSTOMERS - 1}) AS n",
            )
            dsn = folder / "dsn"
            dsn.write_text(database.dsn())
            dsn.chmod(0o400)
            write_events(folder / "events")
            yield Cluster(spark, dsn, [node_sidecar(node, dsn) for node in spark.nodes])


def node_sidecar(node: Path, dsn: Path) -> SidecarProcess:
    """The sidecar of a node with the example's configuration."""
    environ = {DSN: str(dsn)}
    command = (*SERVE, "--config", str(DEPLOY / "sidelook.yaml"))
    return SidecarProcess(node, command, {**clean_environ(), **environ})


def write_events(folder: Path) -> None:
    """A million records in several files; each twentieth has no customer."""
    folder.mkdir()
    for first in range(0, RECORDS, RECORDS // FILES):
        lines = pa.array(range(first, first + RECORDS // FILES), pa.int64())
        customers = [customer_of(line) for line in lines.to_pylist()]
        events = pa.table({"line": lines, "customer_id": pa.array(customers, pa.int64())})
        pq.write_table(events, folder / f"{first}.parquet")


def customer_of(line: int) -> int:
    """The customer of a record, spread over all of them; above their number there is none."""
    return -1 if line % 20 == 0 else line * 7919 % CUSTOMERS


def assert_right(enriched: pa.Table) -> None:
    """Every record is there once, with the columns of its customer."""
    lines = range(RECORDS)
    ids = [customer_of(line) for line in lines]
    assert enriched["line"].to_pylist() == list(lines)
    assert enriched["customer_id"].to_pylist() == ids
    names = [None if each < 0 else f"customer {each}" for each in ids]
    assert enriched["name"].to_pylist() == names
    assert enriched["segment"].to_pylist() == [None if n < 0 else f"s{n % 7}" for n in ids]
    assert enriched["tier"].to_pylist() == [None if each < 0 else each % 5 for each in ids]


def test_each_node_uses_its_sidecar(cluster: Cluster) -> None:
    """A million records are enriched once each, by the sidecars of both nodes."""
    first, second = cluster.sidecars
    with first.running(), second.running():
        job = cluster.submit("plain")
        lookups = [SidecarFigures(each).lookups() for each in cluster.sidecars]

    assert job.returncode == 0, job.stderr
    assert all(lookups), lookups
    assert_right(cluster.output("plain"))


def is_in_the_middle(sidecar: SidecarProcess) -> bool:
    """Whether it has answered lookups and holds unanswered ones."""
    figures = SidecarFigures(sidecar).read()
    return figures[LOOKUPS] > ANSWERED and figures["sidelook_in_flight_records"] > 0


def test_killed_sidecar_loses_no_record(cluster: Cluster) -> None:
    """A sidecar that gets SIGKILL during the job and is restarted changes no record."""
    killed, other = cluster.sidecars
    with ThreadPoolExecutor() as jobs, other.running():
        with killed.running(ends_by=signal.SIGKILL):
            job = jobs.submit(cluster.submit, "killed")
            until(lambda: is_in_the_middle(killed) or job.done(), within_s=JOB_TIMEOUT_S)
            assert not job.done(), job.result().stderr
        with killed.running():
            ended = job.result()
            lookups = SidecarFigures(killed).lookups()

    assert ended.returncode == 0, ended.stderr
    assert lookups > 0  # of the restarted one
    assert_right(cluster.output("killed"))


def shared_sidecar(cluster: Cluster, signer: Authority, port: int) -> SidecarProcess:
    """The example's sidecar service, on loopback, with its secrets in the authority's folder."""
    token, files = signer.folder / "token", signer.issue("localhost")
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o400)
    environ = {
        DSN: str(cluster.dsn),
        "SIDELOOK_AUTH__TOKEN_FILE": str(token),
        "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{port}",
        "SIDELOOK_LISTEN__TLS__CERT_FILE": str(files.cert_file),
        "SIDELOOK_LISTEN__TLS__KEY_FILE": str(files.key_file),
    }
    command = (*SERVE, "--config", str(DEPLOY / "shared" / "sidelook.yaml"))
    return SidecarProcess(signer.folder, command, {**clean_environ(), **environ})


def test_nodes_share_a_sidecar_over_tls(cluster: Cluster) -> None:
    """Executors without a sidecar use one service; `--files` brings them token and CA."""
    signer, port = authority(cluster.spark.folder / "shared"), free_port()
    files = {"TOKEN_FILE": str(signer.folder / "token"), "CA_FILE": str(signer.file)}
    sidecar = shared_sidecar(cluster, signer, port)
    with sidecar.running():
        job = cluster.run("shared", "tls", SIDECAR=f"https://localhost:{port}", **files)

    assert job.returncode == 0, job.stderr
    assert_right(cluster.output("tls"))
