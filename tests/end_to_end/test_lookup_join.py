"""Batch lookup joins and lookup functions in Spark against a real sidecar."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import (
    configured,
    postgres,
    url_of,
)
from tests.end_to_end.spark_frames import python_workers
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess

WAIT_S = 20.0
MAX_WORKERS = 4  # one for each of two joins, in two tasks at a time
LABELLED = [(number, f"customer {number}", "abcde"[number % 5]) for number in range(1000)]


@pytest.fixture(scope="module")
def sidecar(sidecar_process: SidecarProcess) -> Sidecar:
    """The client's handle of the shared sidecar."""
    return Sidecar(url_of(sidecar_process), connect_timeout=WAIT_S)


def named_and_labelled(session: SparkSession, sidecar: Sidecar, **options: Any) -> list[object]:  # noqa: ANN401
    """Customers with the labels of their tiers: the second join has a key of the first."""
    named = session.range(0, 1500, numPartitions=2).transform(
        sidecar.lookup_join("customers", on="id", how="inner", **options)
    )
    labelled = named.transform(sidecar.lookup_join("tiers", on="tier", **options))
    rows = labelled.select("id", "name", "label").orderBy("id").collect()
    return [tuple(row) for row in rows]


def test_workers_serve_job_after_job(
    spark_session: SparkSession, sidecar: Sidecar, sidecar_process: SidecarProcess
) -> None:
    """The same worker processes run joins upon joins, and hold nothing between jobs."""
    figures = SidecarFigures(sidecar_process)
    named_and_labelled(spark_session, sidecar)
    workers = python_workers()

    for mode in ("ordered", "unordered", "ordered"):
        assert named_and_labelled(spark_session, sidecar, mode=mode) == LABELLED
        figures.seconds_until_at_rest()

    # Tasks may now run in parallel that ran in sequence before, and need more workers.
    assert workers <= python_workers()
    assert len(python_workers()) <= max(len(workers), MAX_WORKERS)


@pytest.fixture(scope="module")
def whole(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar with a table of PostgreSQL that has several rows for a key, and default rows."""
    database.execute(
        "CREATE TABLE lines (id int4, item text, amount numeric(9, 2))",
        "CREATE INDEX ON lines (id)",
        "INSERT INTO lines SELECT n % 20, 'item ' || n, n / 4.0 FROM generate_series(1, 50) AS n",
    )
    lines = postgres(database.dsn(), "lines", match="all")
    dimensions = {"lines": lines, "known": {**lines, "default": {"item": ["none", "ask"]}}}
    process = configured(tmp_path_factory.mktemp("whole"), dimensions)
    with process.running():
        yield Sidecar(url_of(process), connect_timeout=WAIT_S)


@pytest.mark.real_path
def test_expanded_rows_are_those_of_a_plain_join(
    spark_session: SparkSession, whole: Sidecar
) -> None:
    """Keys in structs and expressions over PostgreSQL: the rows of Spark's own joins."""
    lines = spark_session.createDataFrame(
        [(n % 20, f"item {n}", Decimal(n) / 4) for n in range(1, 51)],
        "id int, item string, amount decimal(9,2)",
    )
    records = spark_session.range(-30, 30).selectExpr(
        "id AS n", "struct(abs(id) AS id) AS customer"
    )

    for how in ("left", "inner"):
        by_path = whole.lookup_join("lines", on="customer.id", how=how, expand=True)
        by_expression = whole.lookup_join(
            "lines", on=F.abs("n") - 1, how=how, expand=True, columns=["item"], prefix="before_"
        )
        found = records.transform(whole.lookup_joins([by_path, by_expression]))

        first = records.join(lines, records["customer.id"] == lines["id"], how).drop("id")
        before = lines.select("id", F.col("item").alias("before_item"))
        plain = first.join(before, F.abs("n") - 1 == before["id"], how).drop("id")
        assert found.schema.simpleString() == plain.schema.simpleString()
        assert Counter(map(repr, found.collect())) == Counter(map(repr, plain.collect()))
