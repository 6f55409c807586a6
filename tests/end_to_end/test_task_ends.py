"""Tasks that end before their input does: wanted no more, failed, cancelled or killed."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.python_workers import python_workers
from tests.grace import GRACE_S
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.spark_cluster import BatchGate
from tools.processes.until import until

RECORDS = 40_000
PADDING = 1000  # bytes of each record: a partition is more than the buffers on its way hold
PROMISED_S = 1.0  # from the death of a worker until nothing of it is held
GROUP = "to be cancelled"
WANTED: dict[str, Callable[[DataFrame], Any]] = {
    "take": lambda frame: frame.take(3),
    "limit": lambda frame: frame.limit(3).collect(),
    "show": lambda frame: frame.show(3),
}


@pytest.fixture
def figures(sidecar_process: SidecarProcess) -> SidecarFigures:
    """Of a sidecar at rest."""
    figures = SidecarFigures(sidecar_process)
    figures.seconds_until_at_rest()
    return figures


@pytest.fixture
def enriched(spark_session: SparkSession, sidecar_process: SidecarProcess) -> DataFrame:
    """Two partitions, each of more records than are ever in flight."""
    numbers = spark_session.range(0, RECORDS, numPartitions=2)
    records = numbers.select("id", F.lpad("id", PADDING, " ").alias("padding"))
    join = Sidecar(url_of(sidecar_process), connect_timeout=20).lookup_join(
        "customers", on="id", mode="unordered", capacity=2000
    )
    return records.transform(join)


@pytest.fixture
def held_up(enriched: DataFrame, tmp_path: Path) -> DataFrame:
    """Tasks that stand still after some rows, with open channels, until they are ended."""
    return enriched.mapInArrow(BatchGate(tmp_path, rows=100), enriched.schema)


def right_rows(enriched: DataFrame) -> int:
    """How many rows of customers are as they must be."""
    is_right = F.col("name") == F.concat(F.lit("customer "), F.col("id"))
    return enriched.where(is_right & (F.col("tier") == F.col("id") % 5)).count()


@pytest.mark.parametrize("wanted", WANTED)
def test_unwanted_rest_gives_all_back(
    enriched: DataFrame, figures: SidecarFigures, wanted: str
) -> None:
    """Who wants a few rows only leaves no channel, no credit and no record behind."""
    before = figures.lookups()

    WANTED[wanted](enriched)

    figures.seconds_until_at_rest()
    assert figures.lookups() - before < RECORDS
    assert right_rows(enriched) == 1000


def test_failing_task_gives_all_back(enriched: DataFrame, figures: SidecarFigures) -> None:
    """A function that fails behind the join ends the task, and what the task had is free again."""
    fail = F.udf(lambda number: 1 // (number - 500), "long")

    with pytest.raises(PythonException, match="ZeroDivisionError"):
        enriched.select(F.sum(fail("id"))).collect()

    figures.seconds_until_at_rest()
    assert right_rows(enriched) == 1000


def test_cancelled_job_gives_all_back(
    spark_session: SparkSession, held_up: DataFrame, figures: SidecarFigures
) -> None:
    """Spark ends the workers of a job that it interrupts, and their channels are free again."""
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
    """A worker that gets SIGKILL tells nobody, and what it had is free again within a second."""
    with ThreadPoolExecutor() as jobs:
        job: Future[int] = jobs.submit(held_up.count)
        until(lambda: figures.channels() == 2)
        for worker in python_workers():
            with suppress(ProcessLookupError):  # one that idled and has just ended
                os.kill(worker, signal.SIGKILL)
        figures.seconds_until_at_rest(within_s=PROMISED_S + GRACE_S)

        with pytest.raises(Exception, match="exited unexpectedly"):
            job.result()
