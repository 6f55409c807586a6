"""Sidecars that are replaced during a Spark job."""

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import CUSTOMERS, customers_sidecar, url_of
from tests.end_to_end.spark_frames import Fingerprint, fingerprint
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

RECORDS = 600_000  # some seconds of work
KEYS = 1500  # a third of them has no row
JOB_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def records(spark_session: SparkSession) -> DataFrame:
    """Four partitions with all keys in each."""
    numbers = spark_session.range(0, RECORDS, numPartitions=4)
    return numbers.select(F.col("id").alias("line"), (F.col("id") * 7919 % KEYS).alias("id"))


@pytest.fixture(scope="module")
def expected(spark_session: SparkSession, records: DataFrame) -> Fingerprint:
    """The rows of Spark's own join."""
    customers = spark_session.createDataFrame(CUSTOMERS)
    joined = records.join(F.broadcast(customers), on="id", how="left")
    return fingerprint(joined.select("line", "id", "name", "tier"))


@dataclass(frozen=True, slots=True)
class Restarted:
    """The rows of a job, and the lookups that each of its two sidecars answered."""

    rows: Fingerprint
    lookups_before: float
    lookups_after: float


def restarted(sidecar: SidecarProcess, enriched: DataFrame, ends_by: signal.Signals) -> Restarted:
    """Run a job; during it, end the sidecar and start another at the same socket."""
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
    folder: Path,
    records: DataFrame,
    expected: Fingerprint,
    *,
    ends_by: signal.Signals,
    mode: Literal["ordered", "unordered"],
) -> None:
    """The next sidecar at the same socket answers the rest once; no task runs again."""
    sidecar = customers_sidecar(folder)
    join = Sidecar(url_of(sidecar), connect_timeout=60).lookup_join(
        "customers", on="id", mode=mode, capacity=2000, timeout=60, schema="name string, tier int"
    )

    found = restarted(sidecar, records.transform(join), ends_by)

    assert found.rows == expected
    assert 0 < found.lookups_before < RECORDS
    assert 0 < found.lookups_after < RECORDS
