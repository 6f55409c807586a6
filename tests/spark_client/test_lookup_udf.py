"""A lookup as a function of columns, in Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_client import Sidecar
from spark_client.fake_sidecar import FakeDimension, FakeSidecar
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS

pytestmark = pytest.mark.full


def test_function_gives_a_struct_column(spark_session: SparkSession, tmp_path: Path) -> None:
    """Beside each record its row as a struct, NULL without one, in the records' order."""
    records = spark_session.createDataFrame([(3,), (9,), (None,), (2,)], "id long").coalesce(1)

    with FakeServer(FakeSidecar(DIMENSIONS)).at(tmp_path / "s.sock") as url:
        customer = Sidecar(url).lookup_udf("customers", columns=["name"])
        rows = records.select("id", customer("id").alias("c"), "c.name").collect()

    assert [(row["id"], row["c"] is None, row["name"]) for row in rows] == [
        (3, False, "Ćirić"),
        (9, True, None),
        (None, True, None),
        (2, False, None),
    ]


def test_function_takes_a_composite_key(spark_session: SparkSession, tmp_path: Path) -> None:
    """Several columns in the order of the key; with a schema the driver asks nobody."""
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "name": ["one", "two"]})
    records = spark_session.createDataFrame([(2, "y"), (2, "x")], "p int, q string").coalesce(1)

    with FakeServer(FakeSidecar({"d": FakeDimension(table, ("a", "b"))})).at(
        tmp_path / "s.sock"
    ) as url:
        name = Sidecar(url).lookup_udf("d", schema="name string")
        rows = records.select(name("p", "q").alias("c")).collect()

    assert [row["c"] and row["c"]["name"] for row in rows] == ["two", None]
