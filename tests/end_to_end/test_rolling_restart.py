"""Sidecars that are replaced while a Spark job streams through them."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.fingerprint import Fingerprint, fingerprint
from tests.end_to_end.parquet_sidecar import CUSTOMERS, stopped_parquet_sidecar, url_of
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

RECORDS = 600_000  # some seconds of work
KEYS = 1500  # a third of them has no row
JOB_TIMEOUT_S = 120.0


@pytest.fixture
def sidecar() -> Iterator[SidecarProcess]:
    """One that the test starts and stops."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    yield stopped_parquet_sidecar(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def records(spark_session: SparkSession) -> DataFrame:
    """Four partitions, the keys all over them."""
    numbers = spark_session.range(0, RECORDS, numPartitions=4)
    return numbers.select(F.col("id").alias("line"), (F.col("id") * 7919 % KEYS).alias("id"))


@pytest.fixture(scope="module")
def expected(spark_session: SparkSession, records: DataFrame) -> Fingerprint:
    """What Spark's own join gives."""
    customers = spark_session.createDataFrame(CUSTOMERS)
    joined = records.join(F.broadcast(customers), on="id", how="left")
    return fingerprint(joined.select("line", "id", "name", "tier"))


@dataclass(frozen=True, slots=True)
class Restarted:
    """A job that a sidecar was replaced in: its rows, and the lookups that each process answered.

    Those of the first one as they were when the job went on without it being told yet.
    """

    rows: Fingerprint
    lookups_before: float
    lookups_after: float


def restarted(sidecar: SidecarProcess, enriched: DataFrame, ends_by: signal.Signals) -> Restarted:
    """Run a job; end the sidecar in the midst of it, and start another one in its place."""
    figures = SidecarFigures(sidecar)
    with ThreadPoolExecutor() as jobs:
        with sidecar.running(ends_by=ends_by):
            job = jobs.submit(fingerprint, enriched)
            until(lambda: figures.lookups() > RECORDS / 10)
            before = figures.lookups()
        with sidecar.running():
            rows = job.result(JOB_TIMEOUT_S)
            figures.seconds_until_at_rest()
            return Restarted(rows, before, figures.lookups())


@pytest.mark.parametrize(
    ("ends_by", "mode"),
    [(signal.SIGTERM, "ordered"), (signal.SIGKILL, "unordered")],
    ids=["drained", "killed"],
)
def test_restart_in_mid_job_is_invisible(
    sidecar: SidecarProcess,
    records: DataFrame,
    expected: Fingerprint,
    *,
    ends_by: signal.Signals,
    mode: Literal["ordered", "unordered"],
) -> None:
    """The next sidecar at the same socket answers what is left, once; no task is run again."""
    join = Sidecar(url_of(sidecar), connect_timeout=60).lookup_join(
        "customers", on="id", mode=mode, capacity=2000, timeout=60, schema="name string, tier int"
    )

    found = restarted(sidecar, records.transform(join), ends_by)

    assert found.rows == expected
    assert 0 < found.lookups_before < RECORDS
    assert 0 < found.lookups_after < RECORDS
