"""What `on_timeout` and `on_error` do to a real job."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.frozen import frozen
from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar, url_of
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.spark_cluster import BatchGate
from tools.processes.until import until

JOB_TIMEOUT_S = 60.0
ROWS_BEFORE = 2000  # of the gate; padded, so that no buffer of Spark's holds all of them back
ROWS = 3000
CAPACITY = 1000  # who asks for more than that has had answers
TIMEOUT_S = 2.0
TOO_LARGE = 2**40  # for the key of the tiers, which is an int


@pytest.fixture
def own_sidecar() -> Iterator[SidecarProcess]:
    """One that the test starts, freezes and stops."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    yield stopped_parquet_sidecar(folder)
    shutil.rmtree(folder, ignore_errors=True)


def rows_of_frozen_job(
    session: SparkSession,
    sidecar: SidecarProcess,
    folder: Path,
    *,
    on_timeout: Literal["fail", "null"],
) -> list[Row]:
    """The rows of a job whose sidecar freezes when a part of the lookups has been answered."""
    gate = BatchGate(folder, ROWS_BEFORE)
    padded = session.range(0, ROWS, numPartitions=1).select("id", F.repeat("id", 100).alias("pad"))
    with sidecar.running() as process, ThreadPoolExecutor() as jobs:
        join = Sidecar(url_of(sidecar)).lookup_join(
            "customers",
            on="id",
            capacity=CAPACITY,
            timeout=TIMEOUT_S,
            on_timeout=on_timeout,
            status_column="_lookup",
        )
        enriched = padded.mapInArrow(gate, padded.schema).transform(join)
        job = jobs.submit(enriched.select("id", "name", "_lookup.*").collect)
        # Not with the first ones: what is counted may not be sent yet.
        until(lambda: SidecarFigures(sidecar).lookups() > CAPACITY)
        with frozen(process):
            gate.open()
            return job.result(JOB_TIMEOUT_S)


def test_timeouts_become_nulls(
    spark_session: SparkSession, own_sidecar: SidecarProcess, tmp_path: Path
) -> None:
    """With "null" the job ends well, and the status says which rows timed out; all are there."""
    rows = rows_of_frozen_job(spark_session, own_sidecar, tmp_path, on_timeout="null")

    late = [row for row in rows if row["outcome"] == "timeout"]
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert 0 < len(late) < ROWS
    assert {(row["name"], row["error"]) for row in late} == {(None, "timeout")}


def test_timeout_fails_the_task(
    spark_session: SparkSession, own_sidecar: SidecarProcess, tmp_path: Path
) -> None:
    """With "fail", the default, the error names the dimension, the reason and the option."""
    message = r"lookups of 'customers' timed out \(timeout: .*\); on_timeout is 'fail'"

    with pytest.raises(PythonException, match=message):
        rows_of_frozen_job(spark_session, own_sidecar, tmp_path, on_timeout="fail")


@pytest.fixture
def with_bad_key(spark_session: SparkSession) -> DataFrame:
    """Three keys for an int: good, beyond its range, and good again."""
    return spark_session.createDataFrame([(1,), (TOO_LARGE,), (2,)], "tier long").coalesce(1)


def labels(records: DataFrame, sidecar: SidecarProcess, **options: Any) -> list[Any]:  # noqa: ANN401
    """Label, outcome and error of each record."""
    join = Sidecar(url_of(sidecar)).lookup_join(
        "tiers", on="tier", status_column="_lookup", **options
    )
    rows = records.transform(join).select("label", "_lookup.outcome", "_lookup.error").collect()
    return [tuple(row) for row in rows]


def test_errors_become_nulls(with_bad_key: DataFrame, sidecar_process: SidecarProcess) -> None:
    """With "null" one bad key harms no other, and its status says what is wrong with it."""
    found = labels(with_bad_key, sidecar_process, on_error="null")

    assert [(label, error) for label, _, error in found] == [
        ("b", None),
        (None, "type"),
        ("c", None),
    ]
    assert found[1][1] == "error"


def test_error_fails_the_task(with_bad_key: DataFrame, sidecar_process: SidecarProcess) -> None:
    """With "fail", the default, the error names the dimension, the reason and the option."""
    message = r"1 lookups of 'tiers' failed \(type: .* out of range\); on_error is 'fail'"

    with pytest.raises(PythonException, match=message):
        labels(with_bad_key, sidecar_process)
