"""Tasks that end early: by a limit, a failure, a cancelled job, or SIGKILL."""

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import url_of
from tests.end_to_end.spark_cluster import BatchGate
from tests.end_to_end.spark_frames import python_workers
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

RECORDS = 40_000
PADDING = 1000  # bytes of each record: a partition exceeds all buffers
GROUP = "to be cancelled"


@pytest.fixture
def figures(sidecar_process: SidecarProcess) -> SidecarFigures:
    """The figures of a sidecar at rest."""
    figures = SidecarFigures(sidecar_process)
    figures.seconds_until_at_rest()
    return figures


@pytest.fixture
def enriched(spark_session: SparkSession, sidecar_process: SidecarProcess) -> DataFrame:
    """Two partitions with more records than the capacity."""
    numbers = spark_session.range(0, RECORDS, numPartitions=2)
    records = numbers.select("id", F.lpad("id", PADDING, " ").alias("padding"))
    join = Sidecar(url_of(sidecar_process), connect_timeout=20).lookup_join(
        "customers", on="id", mode="unordered", capacity=2000
    )
    return records.transform(join)


@pytest.fixture
def held_up(enriched: DataFrame, tmp_path: Path) -> DataFrame:
    """Tasks that block after some rows, with open channels, until they are ended."""
    return enriched.mapInArrow(BatchGate(tmp_path, rows=100), enriched.schema)


def right_rows(enriched: DataFrame) -> int:
    """The number of correct rows with a customer."""
    is_right = F.col("name") == F.concat(F.lit("customer "), F.col("id"))
    return enriched.where(is_right & (F.col("tier") == F.col("id") % 5)).count()


def test_unwanted_rest_gives_all_back(enriched: DataFrame, figures: SidecarFigures) -> None:
    """A query that needs a few rows leaves no channel, credit or record behind."""
    before = figures.lookups()

    enriched.limit(3).collect()

    figures.seconds_until_at_rest()
    assert figures.lookups() - before < RECORDS
    assert right_rows(enriched) == 1000


def test_failing_task_gives_all_back(enriched: DataFrame, figures: SidecarFigures) -> None:
    """A task that a later function fails releases its channel, credit and records."""
    fail = F.udf(lambda number: 1 // (number - 500), "long")

    with pytest.raises(PythonException, match="ZeroDivisionError"):
        enriched.select(F.sum(fail("id"))).collect()

    figures.seconds_until_at_rest()
    assert right_rows(enriched) == 1000


def test_cancelled_job_gives_all_back(
    spark_session: SparkSession, held_up: DataFrame, figures: SidecarFigures
) -> None:
    """The workers of a cancelled job release their channels, credit and records."""
    context = spark_session.sparkContext

    def run() -> None:
        context.setJobGroup(GROUP, GROUP, interruptOnCancel=True)
        held_up.count()

    with ThreadPoolExecutor() as jobs:
        job = jobs.submit(run)
        until(lambda: figures.channels() == 2)
        context.cancelJobGroup(GROUP)
        with pytest.raises(Exception, match="cancelled"):
            job.result()

    figures.seconds_until_at_rest()


def test_killed_worker_gives_all_back(held_up: DataFrame, figures: SidecarFigures) -> None:
    """F1: a worker that gets SIGKILL releases its channels, credit and records."""
    with ThreadPoolExecutor() as jobs:
        job: Future[int] = jobs.submit(held_up.count)
        until(lambda: figures.channels() == 2)
        for worker in python_workers():
            with suppress(ProcessLookupError):  # an idle worker may have ended
                os.kill(worker, signal.SIGKILL)
        figures.seconds_until_at_rest()

        with pytest.raises(Exception, match="exited unexpectedly"):
            job.result()
