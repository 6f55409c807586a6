"""DataFrames divided by key group, on a real Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client import Sidecar
from spark_client.fake_sidecar import FakeSidecar
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS

pytestmark = pytest.mark.full


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    """A sidecar that the driver reaches."""
    with FakeServer(FakeSidecar(DIMENSIONS)).at(tmp_path / "s.sock") as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture
def records(spark_session: SparkSession) -> DataFrame:
    """A thousand records of a hundred keys in four partitions, with NULLs among them."""
    key = F.when(F.col("id") % 97 != 0, F.col("id") % 100)
    return spark_session.range(0, 1000, 1, 4).select(key.alias("id"), F.col("id").alias("n"))


def partitions_of(records: DataFrame, key: str) -> dict[Any, set[int]]:
    """{key: the partitions that have records with it}."""
    found: dict[Any, set[int]] = {}
    for row in records.select(key, F.spark_partition_id()).collect():
        found.setdefault(row[0], set()).add(row[1])
    return found


def test_equal_keys_share_a_partition(sidecar: Sidecar, records: DataFrame) -> None:
    """Every key, NULL too, is in one partition; all records are there, and several partitions."""
    divided = records.transform(sidecar.repartition_for("customers", partitions=5))

    found = partitions_of(divided, "id")
    assert all(len(partitions) == 1 for partitions in found.values())
    assert set.union(*found.values()) == set(range(5))
    assert Counter(divided.collect()) == Counter(records.collect())


def test_width_of_the_key_does_not_matter(sidecar: Sidecar, records: DataFrame) -> None:
    """The same numbers in a narrower column go to the same partitions."""
    divide = sidecar.repartition_for("customers", on="id", partitions=7)
    narrow = records.withColumn("id", F.col("id").cast("smallint"))

    assert partitions_of(records.transform(divide), "id") == partitions_of(
        narrow.transform(divide), "id"
    )


def test_columns_and_metadata_stay(sidecar: Sidecar, spark_session: SparkSession) -> None:
    """Only the partitions change: not a name, however odd, nor a field's metadata."""
    odd = F.col("id").alias("a.b`c", metadata={"spark.watermarkDelayMs": 10_000})
    records = spark_session.range(10).select(odd, F.lit("x").alias("`x`"))

    divided = records.transform(sidecar.repartition_for("customers", on=["a.b`c", "`x`"]))

    assert divided.schema == records.schema
    assert divided.schema[0].metadata == {"spark.watermarkDelayMs": 10_000}
    assert sorted(divided.collect()) == sorted(records.collect())


def test_usual_number_of_partitions_is_kept(sidecar: Sidecar, records: DataFrame) -> None:
    """Without a number it is that of all shuffles of the session."""
    divided = records.transform(sidecar.repartition_for("customers"))

    assert divided.select(F.spark_partition_id()).distinct().count() == 2


def test_other_names_need_to_be_said(sidecar: Sidecar, records: DataFrame) -> None:
    """Records that call their key otherwise are refused, with the remedy."""
    with pytest.raises(InvalidRequest, match="no column 'id'") as caught:
        records.withColumnRenamed("id", "customer").transform(sidecar.repartition_for("customers"))

    assert "with on=" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("column", "code", "detail"),
    [
        ("nobody", ErrorCode.UNKNOWN_COLUMN, "no column 'nobody'; they have id, n, x, a"),
        ("x", ErrorCode.KEY_TYPE, "'x' is double, which is no key to divide by; cast it"),
        ("a", ErrorCode.KEY_TYPE, "'a' is array<bigint>, which is no key type"),
    ],
)
def test_wrong_columns_show_on_the_driver(
    sidecar: Sidecar, records: DataFrame, column: str, code: ErrorCode, detail: str
) -> None:
    """What there is not, or is no key, is an error before any job."""
    wider = records.withColumn("x", F.lit(1.5)).withColumn("a", F.array("n"))

    with pytest.raises(InvalidRequest, match=code) as caught:
        wider.transform(sidecar.repartition_for("customers", on=column))

    assert detail in caught.value.detail
