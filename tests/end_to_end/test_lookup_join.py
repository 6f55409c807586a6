"""Lookup joins in Spark against the real sidecar: batch queries."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import PLACES, TEXTS, url_of
from tools.processes.sidecar_process import SidecarProcess

WAIT_S = 20.0


@pytest.fixture(scope="module")
def sidecar(sidecar_process: SidecarProcess) -> Sidecar:
    """The client's handle of the sidecar."""
    return Sidecar(url_of(sidecar_process), connect_timeout=WAIT_S)


@pytest.fixture(scope="module")
def places(spark_session: SparkSession) -> DataFrame:
    """The dimension as a DataFrame, for plain joins."""
    return spark_session.createDataFrame(
        PLACES.to_pylist(), "text string, number long, place string"
    )


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows."""
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
    """Duplicates, NULLs, unknown keys and any characters: the same rows as Spark's own join."""
    numbered = [(n, text, number) for n, (text, number) in enumerate(keys)]
    records = spark_session.createDataFrame(numbered, "n long, text string, number long").coalesce(
        1
    )

    enriched = records.transform(
        sidecar.lookup_join("places", on=["text", "number"], mode=mode, capacity=60)
    )

    plain = records.join(places, on=["text", "number"], how="left")
    expected = rows_of(plain.select("n", "text", "number", "place").orderBy("n"))
    found = rows_of(enriched)
    if mode == "ordered":
        assert found == expected
    else:
        assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_key_columns_may_have_other_names(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """A key is told by a mapping to the dimension's names, or by position."""
    records = spark_session.range(3).withColumnRenamed("id", "customer_id")

    mapped = records.transform(
        sidecar.lookup_join("customers", on={"customer_id": "id"}, columns=["name"])
    )
    placed = records.transform(sidecar.lookup_join("customers", on="customer_id", columns=["name"]))

    assert {row["name"] for row in rows_of(mapped)} == {f"customer {n}" for n in range(3)}
    assert sorted(map(repr, rows_of(placed))) == sorted(map(repr, rows_of(mapped)))


def test_functions_are_described_without_a_key(
    spark_session: SparkSession, sidecar: Sidecar
) -> None:
    """A lookup function asks the sidecar for the columns alone, and finds its key by position."""
    customer = sidecar.lookup_udf("customers", columns=["name"])

    rows = spark_session.range(2).coalesce(1).select(customer("id").alias("c")).collect()

    assert [row["c"]["name"] for row in rows] == ["customer 0", "customer 1"]


@pytest.mark.real_path
def test_inner_join_drops_what_found_nothing(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """Over several partitions, with more records than the capacity."""
    records = spark_session.range(0, 3000, numPartitions=3)

    enriched = records.transform(
        sidecar.lookup_join("customers", on="id", how="inner", capacity=64)
    )

    assert enriched.count() == 1000


def test_limit_leaves_no_channel_behind(
    spark_session: SparkSession, sidecar: Sidecar, sidecar_process: SidecarProcess
) -> None:
    """A query that wants a few rows only gives its channels back, whatever is in flight."""
    records = spark_session.range(0, 5000, numPartitions=2)

    some = records.transform(sidecar.lookup_join("customers", on="id", mode="unordered")).limit(3)

    assert len(some.collect()) == 3
    until_s = time.monotonic() + WAIT_S
    while (channels := _channels(sidecar_process)) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert channels == []


@pytest.mark.real_path
def test_missing_sidecar_fails_the_task(spark_session: SparkSession, tmp_path: Path) -> None:
    """A task that finds no sidecar in time ends with an error that names the path."""
    nowhere = Sidecar(f"unix://{tmp_path}/missing.sock", connect_timeout=0.2)
    join = nowhere.lookup_join("customers", on="id", schema="name string")

    with pytest.raises(PythonException, match=r"missing\.sock: no such socket"):
        spark_session.range(3).transform(join).collect()


@pytest.mark.real_path
def test_wrong_key_type_shows_on_the_driver(spark_session: SparkSession, sidecar: Sidecar) -> None:
    """A text where the dimension has a number is an error before any task."""
    records = spark_session.createDataFrame([("1",)], "id string")

    with pytest.raises(Exception, match="key_type"):
        records.transform(sidecar.lookup_join("customers", on="id"))


def _channels(sidecar: SidecarProcess) -> list[Any]:
    channels: list[Any] = json.loads(sidecar.get("/v1/channels").text)["channels"]
    return channels
