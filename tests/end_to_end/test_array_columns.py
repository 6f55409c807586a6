"""A dimension whose keys have several rows, joined in Spark: arrays beside each record."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tools.processes.sidecar_process import SERVE, SidecarProcess

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


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The invoices of customers, all of them."""
    folder = tmp_path_factory.mktemp("invoices")
    pq.write_table(INVOICES, folder / "invoices.parquet")
    source = {"kind": "parquet", "path": "invoices.parquet"}
    dimension = {"source": source, "key": ["customer"], "match": "all"}
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": {"invoices": dimension}}))  # which is YAML, too
    process = SidecarProcess(folder, (*SERVE, "--config", str(path)))
    with process.running():
        yield Sidecar(url_of(process), connect_timeout=WAIT_S)


def test_join_adds_arrays(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """Each column of the dimension is an array of all rows, NULL where there is no row."""
    records = spark_session.range(7, 10).toDF("customer").coalesce(1)

    joined = records.transform(sidecar.lookup_join("invoices", on="customer"))

    found = [row.asDict() for row in joined.orderBy("customer").collect()]
    assert [kind for _, kind in joined.dtypes[1:]] == TYPES.split()
    assert [row["number"] for row in found] == [[1, 2], [3], None]
    assert [row["amount"] for row in found] == [[Decimal("1.50"), None], [Decimal("2.00")], None]
    assert [row["notes"] for row in found] == [["a", "é"], [None], None]
    assert [len(row["paid"] or ()) for row in found] == [2, 1, 0]


def test_arrays_explode_to_the_rows(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """Arrays of one record are equally long, so that they can be made rows again."""
    records = spark_session.createDataFrame([(8,), (7,), (7,)], "customer long").coalesce(1)
    joined = records.transform(
        sidecar.lookup_join("invoices", on="customer", columns=["number", "paid"])
    )

    rows = joined.selectExpr("inline(arrays_zip(number, paid))").collect()

    moments = spark_session.createDataFrame([(NOON,)], "paid timestamp").collect()
    (noon,) = (row["paid"] for row in moments)
    assert [(row["number"], row["paid"]) for row in rows] == [
        (3, noon),
        *[(1, noon), (2, None)] * 2,
    ]


def test_function_gives_structs_of_arrays(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """The same in an expression."""
    records = spark_session.createDataFrame([(7,)], "customer long")
    invoices = sidecar.lookup_udf("invoices")

    (row,) = records.select(invoices("customer").alias("invoices")).collect()

    assert (row["invoices"]["number"], row["invoices"]["notes"]) == ([1, 2], ["a", "é"])
