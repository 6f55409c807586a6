"""Lookups as of a time in Spark against the real sidecar: what a range join gives, row for row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from demo.flights import write_flights
from lookup_core.errors import InvalidRequest
from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.plane_history import history_sidecar, plane_history

FLIGHTS = 120_000
WAIT_S = 20.0
SEED = 2013
ADDED = ["seats", "livery", "valid_from"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where flights and history lie."""
    return tmp_path_factory.mktemp("as_of")


@pytest.fixture(scope="module")
def sidecar(folder: Path) -> Iterator[Sidecar]:
    """It serves a history of most of the planes that fly, and of one that does not."""
    (folder / "flights").mkdir()
    flights = write_flights(folder / "flights", limit=FLIGHTS)
    tailnums = pc.unique(flights["tailnum"]).drop_null().to_pylist()
    some = [tailnum for number, tailnum in enumerate(tailnums) if number % 9]
    history = plane_history([*some, "N0"], seed=SEED)
    with history_sidecar(folder, history) as process:
        yield Sidecar(url_of(process), connect_timeout=WAIT_S)


@pytest.fixture(scope="module")
def flights(spark_session: SparkSession, sidecar: Sidecar, folder: Path) -> DataFrame:
    """Flights, some of which do not know when they fly, and many at the border of two versions."""
    del sidecar  # it has written them
    return asked(spark_session.read.parquet(str(folder / "flights")))


def asked(flights: DataFrame) -> DataFrame:
    """What a flight has to say."""
    hour = F.date_trunc("hour", "event_time")  # versions begin and end on the hour
    time = F.when(F.col("flight_id") % 3 == 0, hour).otherwise(F.col("event_time"))
    time = F.when(F.col("flight_id") % 101 != 0, time)
    return flights.select("flight_id", "tailnum", time.alias("ts"))


def history(session: SparkSession, folder: Path, *, has_ends: bool) -> DataFrame:
    """The history for a plain join; without ends each version ends where the next one begins."""
    versions = session.read.parquet(str(folder / "planes.parquet"))
    if has_ends:
        return versions
    by_time = Window.partitionBy("tailnum").orderBy(F.col("valid_from").asc_nulls_first())
    return versions.withColumn("valid_to", F.lead("valid_from").over(by_time))


def range_join(records: DataFrame, versions: DataFrame) -> DataFrame:
    """What Spark makes of it without us."""
    ts, begin, end = (F.col(name) for name in ("ts", "valid_from", "valid_to"))
    is_valid: Column = (begin.isNull() | (begin <= ts)) & (end.isNull() | (ts < end))
    matched = records.join(
        F.broadcast(versions.withColumnRenamed("tailnum", "plane")),
        (F.col("tailnum") == F.col("plane")) & is_valid & ts.isNotNull(),
        "left",
    )
    return matched.select(*records.columns, *ADDED)


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    """The same rows, each as often."""
    assert found.count() == expected.count()
    assert found.exceptAll(expected).count() == 0
    assert expected.exceptAll(found).count() == 0


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
@pytest.mark.parametrize("dimension", ["planes", "planes_since"])
def test_batch_output_is_that_of_a_range_join(
    spark_session: SparkSession,
    sidecar: Sidecar,
    flights: DataFrame,
    folder: Path,
    *,
    dimension: str,
    mode: Literal["ordered", "unordered"],
) -> None:
    """Every flight has the version of its plane that was valid when it flew."""
    join = sidecar.lookup_join(dimension, on="tailnum", as_of="ts", columns=ADDED, mode=mode)

    enriched = flights.transform(join).localCheckpoint()

    versions = history(spark_session, folder, has_ends=dimension == "planes")
    assert_same(enriched, range_join(flights, versions))
    assert enriched.where("seats IS NOT NULL").count() > FLIGHTS // 10
    assert enriched.where("ts = valid_from").count() > 10


def test_last_begun_of_overlapping_versions_counts(
    spark_session: SparkSession, sidecar: Sidecar, flights: DataFrame, folder: Path
) -> None:
    """Of all that a range join finds for a flight, the version that began last."""
    join = sidecar.lookup_join("planes_overlapping", on="tailnum", as_of="ts", columns=ADDED)

    enriched = flights.transform(join).localCheckpoint()

    every = range_join(flights, spark_session.read.parquet(str(folder / "overlapping.parquet")))
    by_begin = Window.partitionBy("flight_id").orderBy(F.col("valid_from").desc_nulls_last())
    last = every.withColumn("nr", F.row_number().over(by_begin)).where("nr = 1").drop("nr")
    assert every.count() > FLIGHTS + FLIGHTS // 100
    assert_same(enriched, last)


@pytest.mark.parametrize("kind", ["date", "timestamp_ntz"])
def test_time_without_zone_is_one_of_utc(
    spark_session: SparkSession, sidecar: Sidecar, flights: DataFrame, folder: Path, *, kind: str
) -> None:
    """Whatever the session's zone: days begin, and clocks show what they do, in UTC."""
    some = flights.where(f"flight_id < {FLIGHTS // 10}")
    asked = some.withColumn("ts", F.col("ts").cast(kind)).localCheckpoint()
    join = sidecar.lookup_join("planes", on="tailnum", as_of="ts", columns=ADDED)

    spark_session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        enriched = asked.transform(join).localCheckpoint()
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", "UTC")

    moments = asked.withColumn("ts", F.col("ts").cast("timestamp")).localCheckpoint()
    expected = range_join(moments, history(spark_session, folder, has_ends=True))
    assert_same(enriched.withColumn("ts", F.col("ts").cast("timestamp")), expected)


def test_stream_output_is_that_of_a_range_join(
    spark_session: SparkSession, sidecar: Sidecar, flights: DataFrame, folder: Path, tmp_path: Path
) -> None:
    """The same over micro-batches, with watermarks, and whoever flew without a version dropped."""
    schema = spark_session.read.parquet(str(folder / "flights")).schema
    stream = asked(spark_session.readStream.schema(schema).parquet(str(folder / "flights")))
    join = sidecar.lookup_join(
        "planes",
        on="tailnum",
        as_of="ts",
        columns=ADDED,
        how="inner",
        mode="key_ordered",
        event_time="ts",
        watermark_delay="1 hour",
    )

    query = (
        stream.transform(join)
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "output"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    versions = history(spark_session, folder, has_ends=True)
    expected = range_join(flights, versions).where("seats IS NOT NULL")
    assert_same(spark_session.read.parquet(str(tmp_path / "output")), expected)


def test_outcome_of_no_version_is_missing(sidecar: Sidecar, flights: DataFrame) -> None:
    """A plane with versions, but none when it flew, is missing, as one without any."""
    join = sidecar.lookup_join(
        "planes", on="tailnum", as_of="ts", columns=["seats"], status_column="_s"
    )

    outcomes = flights.transform(join).groupBy("_s.outcome", F.isnull("_s.age_ms")).count()

    found = {(row[0] == "missing", row[1]) for row in outcomes.collect()}
    assert found == {(True, True), (False, False)}


def test_all_columns_are_single_values(sidecar: Sidecar, flights: DataFrame) -> None:
    """Without a choice of columns all come, as they are in the table, the times among them."""
    join = sidecar.lookup_join("planes", on="tailnum", as_of="ts")

    added = flights.transform(join).dtypes[3:]

    times = [("valid_from", "timestamp"), ("valid_to", "timestamp")]
    assert added == [*times, ("seats", "int"), ("livery", "string")]


def test_time_is_asked_for(sidecar: Sidecar, flights: DataFrame) -> None:
    """A dimension with versions is not looked up without a time, nor by a function."""
    with pytest.raises(InvalidRequest, match=r"lookup_join\(as_of=…\)"):
        flights.transform(sidecar.lookup_join("planes", on="tailnum"))
    with pytest.raises(InvalidRequest, match=r"lookup_join\(as_of=…\)"):
        sidecar.lookup_udf("planes")
