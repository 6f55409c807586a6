"""Python workers that Spark forks from a daemon and uses for one task after the other."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.python_workers import python_workers
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess

KEYS = 1500  # two thirds of them have a row
MOST_WORKERS = 4  # one for each of two joins, in two tasks at a time
EXPECTED = [(number, f"customer {number}", "abcde"[number % 5]) for number in range(1000)]


@pytest.fixture
def sidecar(sidecar_process: SidecarProcess) -> Sidecar:
    """The client's handle of the sidecar."""
    return Sidecar(url_of(sidecar_process), connect_timeout=20)


def named_and_labelled(session: SparkSession, sidecar: Sidecar, **options: str) -> list[object]:
    """Customers with the labels of their tiers: two joins, one upon the other."""
    named = session.range(0, KEYS, numPartitions=2).transform(
        sidecar.lookup_join("customers", on="id", how="inner", **options)  # type: ignore[arg-type]  # modes
    )
    labelled = named.transform(sidecar.lookup_join("tiers", on="tier", **options))  # type: ignore[arg-type]  # modes
    rows = labelled.select("id", "name", "label").orderBy("id").collect()
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_joins_stand_upon_each_other(
    spark_session: SparkSession, sidecar: Sidecar, sidecar_process: SidecarProcess, mode: str
) -> None:
    """The key of the second join is what the first one added."""
    found = named_and_labelled(spark_session, sidecar, mode=mode)

    assert found == EXPECTED
    SidecarFigures(sidecar_process).seconds_until_at_rest()


def test_functions_stand_beside_each_other(
    spark_session: SparkSession, sidecar: Sidecar, sidecar_process: SidecarProcess
) -> None:
    """Two lookup functions of one projection share the worker, and each has its own answers."""
    customer = sidecar.lookup_udf("customers", columns=["name"])
    tier = sidecar.lookup_udf("tiers")
    numbers = spark_session.range(0, 1000, numPartitions=2)

    rows = numbers.select(
        "id", customer("id")["name"].alias("name"), tier(F.col("id") % 5)["label"].alias("label")
    ).collect()

    assert [tuple(row) for row in rows] == EXPECTED
    SidecarFigures(sidecar_process).seconds_until_at_rest()


def test_worker_serves_job_after_job(
    spark_session: SparkSession, sidecar: Sidecar, sidecar_process: SidecarProcess
) -> None:
    """The same worker processes give right rows again, with nothing left over in between."""
    figures = SidecarFigures(sidecar_process)
    named_and_labelled(spark_session, sidecar)
    workers = python_workers()

    for _ in range(3):
        assert named_and_labelled(spark_session, sidecar) == EXPECTED
        figures.seconds_until_at_rest()

    # Tasks that ran one after the other before may run side by side now, and need more of them.
    assert workers <= python_workers()
    assert len(python_workers()) <= max(len(workers), MOST_WORKERS)
