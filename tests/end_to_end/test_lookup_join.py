"""Batch lookup joins and lookup functions in Spark against a real sidecar."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import (
    PLACES,
    TEXTS,
    configured,
    customers_sidecar,
    frozen,
    parquet,
    postgres,
    url_of,
)
from tests.end_to_end.spark_frames import python_workers
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.spark_cluster import BatchGate
from tools.processes.until import until

WAIT_S = 20.0
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
INVOICES = pa.table(
    {
        "customer": pa.array([7, 7, 8], pa.int64()),
        "number": pa.array([1, 2, 3], pa.uint32()),
        "amount": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(9, 2)),
        "paid": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        "notes": ["a", "é", None],
    }
)
TYPES = "array<bigint> array<decimal(9,2)> array<timestamp> array<string>"
MAX_WORKERS = 4  # one for each of two joins, in two tasks at a time
LABELLED = [(number, f"customer {number}", "abcde"[number % 5]) for number in range(1000)]
JOB_TIMEOUT_S = 60.0
ROWS_BEFORE = 2000  # of the gate; padded, so that no buffer of Spark holds all of them back
ROWS = 3000
CAPACITY = 1000


@pytest.fixture(scope="module")
def sidecar(sidecar_process: SidecarProcess) -> Sidecar:
    """The client's handle of the shared sidecar."""
    return Sidecar(url_of(sidecar_process), connect_timeout=WAIT_S)


@pytest.fixture(scope="module")
def places(spark_session: SparkSession) -> DataFrame:
    """The dimension as a DataFrame, for plain joins."""
    rows = PLACES.to_pylist()
    return spark_session.createDataFrame(rows, "text string, number long, place string")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows as dicts."""
    return [row.asDict(recursive=True) for row in frame.collect()]


texts = st.one_of(st.none(), st.sampled_from(TEXTS), st.text(max_size=3))
numbers = st.one_of(st.none(), st.integers(0, 2))
frames_of_keys = st.lists(st.tuples(texts, numbers), min_size=1, max_size=120)


@settings(max_examples=8)
@given(keys=frames_of_keys, mode=st.sampled_from(["ordered", "unordered"]))
@pytest.mark.real_path
def test_output_is_that_of_a_plain_join(
    spark_session: SparkSession,
    sidecar: Sidecar,
    places: DataFrame,
    *,
    keys: list[tuple[str | None, int | None]],
    mode: Literal["ordered", "unordered"],
) -> None:
    """Duplicates, NULLs, unknown keys and any characters give the rows of Spark's own join."""
    numbered = [(n, text, number) for n, (text, number) in enumerate(keys)]
    schema = "n long, text string, number long"
    records = spark_session.createDataFrame(numbered, schema).coalesce(1)

    join = sidecar.lookup_join("places", on=["text", "number"], mode=mode, capacity=60)
    found = rows_of(records.transform(join))

    plain = records.join(places, on=["text", "number"], how="left")
    expected = rows_of(plain.select("n", "text", "number", "place").orderBy("n"))
    if mode == "ordered":
        assert found == expected
    else:
        assert Counter(map(repr, found)) == Counter(map(repr, expected))


@pytest.mark.real_path
def test_missing_sidecar_fails_the_task(spark_session: SparkSession, tmp_path: Path) -> None:
    """A task that finds no sidecar in time fails with an error that names the path."""
    nowhere = Sidecar(f"unix://{tmp_path}/missing.sock", connect_timeout=0.2)
    join = nowhere.lookup_join("customers", on="id", schema="name string")

    with pytest.raises(PythonException, match=r"missing\.sock"):
        spark_session.range(3).transform(join).collect()


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
def invoices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar with a dimension whose keys have several rows."""
    folder = tmp_path_factory.mktemp("invoices")
    dimension = parquet(folder, "invoices", INVOICES, "customer", match="all")
    process = configured(folder, {"invoices": dimension})
    with process.running():
        yield Sidecar(url_of(process), connect_timeout=WAIT_S)


def test_several_rows_are_arrays(spark_session: SparkSession, invoices: Sidecar) -> None:
    """With `match: all` columns of joins and fields of functions are arrays, NULL without a row."""
    records = spark_session.range(7, 10).toDF("customer").coalesce(1)

    joined = records.transform(invoices.lookup_join("invoices", on="customer"))

    found = [row.asDict() for row in joined.orderBy("customer").collect()]
    assert [kind for _, kind in joined.dtypes[1:]] == TYPES.split()
    assert [row["number"] for row in found] == [[1, 2], [3], None]
    assert [row["amount"] for row in found] == [[Decimal("1.50"), None], [Decimal("2.00")], None]
    assert [row["notes"] for row in found] == [["a", "é"], [None], None]
    assert [len(row["paid"] or ()) for row in found] == [2, 1, 0]
    pairs = joined.orderBy("customer").selectExpr("inline(arrays_zip(number, notes))").collect()
    assert [tuple(pair) for pair in pairs] == [(1, "a"), (2, "é"), (3, None)]
    function = invoices.lookup_udf("invoices")("customer").alias("found")
    structs = records.orderBy("customer").select(function).collect()
    assert [each["found"] and each["found"]["notes"] for each in structs] == [
        ["a", "é"],
        [None],
        None,
    ]


def rows_of_frozen_job(
    session: SparkSession, folder: Path, on_timeout: Literal["fail", "null"]
) -> list[Row]:
    """The rows of a job whose sidecar freezes after some of the lookups are answered."""
    gate, sidecar = BatchGate(folder, ROWS_BEFORE), customers_sidecar(folder)
    padded = session.range(0, ROWS, numPartitions=1).select("id", F.repeat("id", 100).alias("pad"))
    with sidecar.running() as process, ThreadPoolExecutor() as jobs:
        join = Sidecar(url_of(sidecar)).lookup_join(
            "customers",
            on="id",
            capacity=CAPACITY,
            timeout=2.0,
            on_timeout=on_timeout,
            status_column="_lookup",
        )
        enriched = padded.mapInArrow(gate, padded.schema).transform(join)
        job = jobs.submit(enriched.select("id", "name", "_lookup.*").collect)
        # Beyond the capacity, the client has received answers; lower counts may be unsent.
        until(lambda: SidecarFigures(sidecar).lookups() > CAPACITY)
        with frozen(process):
            gate.open()
            return job.result(JOB_TIMEOUT_S)


def test_timeouts_become_nulls(spark_session: SparkSession, folder: Path) -> None:
    """With `on_timeout="null"` all rows come out, and the status names those that timed out."""
    rows = rows_of_frozen_job(spark_session, folder, "null")

    late = [row for row in rows if row["outcome"] == "timeout"]
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert 0 < len(late) < ROWS
    assert {(row["name"], row["error"]) for row in late} == {(None, "timeout")}


def test_timeout_fails_the_task(spark_session: SparkSession, folder: Path) -> None:
    """With `on_timeout="fail"` the error names the dimension and the option."""
    with pytest.raises(PythonException, match=r'"customers" had no .* set on_timeout='):
        rows_of_frozen_job(spark_session, folder, "fail")


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


def test_failed_lookups_get_default_rows(spark_session: SparkSession, whole: Sidecar) -> None:
    """A key out of the range of its column is an error; the rows are those of the default."""
    records = spark_session.createDataFrame([(1,), (2**40,), (77,)], "id long").coalesce(1)

    joined = records.transform(
        whole.lookup_join(
            "known", on="id", expand=True, how="inner", on_error="default", status_column="_s"
        )
    )

    assert [
        (row["id"], row["item"], row["_s"]["outcome"], row["_s"]["error"])
        for row in joined.collect()
    ] == [
        *((1, item, "fetched", None) for item in ("item 1", "item 21", "item 41")),
        *((2**40, item, "error", "type") for item in ("none", "ask")),
        *((77, item, "default", None) for item in ("none", "ask")),
    ]
