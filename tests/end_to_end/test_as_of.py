"""Lookups as of a time in Spark against a real sidecar: the rows of a range join."""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from demo.flights import write_flights
from spark_client import Sidecar
from tests.end_to_end.sidecars import configured, parquet, url_of
from tests.end_to_end.spark_frames import written

FLIGHTS = 120_000
WAIT_S = 20.0
SEED = 2013
ADDED = ["seats", "livery", "valid_from"]
INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "tailnum": pa.utf8(),
        "valid_from": INSTANT,
        "valid_to": INSTANT,
        "seats": pa.int32(),
        "livery": pa.utf8(),
    }
)
NEW_YEAR = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
FAR = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)  # the end of versions in tables without NULL
HOURS = 365 * 24
MAX_VERSIONS = 6


def plane_history(tailnums: Sequence[str]) -> pa.Table:
    """Seeded versions in random order: with gaps, adjacent, unbounded, or none."""
    chance = np.random.default_rng(SEED)
    rows = [row for tailnum in tailnums for row in versions_of(tailnum, chance)]
    chance.shuffle(rows)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def versions_of(tailnum: str, chance: np.random.Generator) -> Iterator[tuple[object, ...]]:
    """The versions of one plane."""
    count = int(chance.integers(0, MAX_VERSIONS + 1))
    hours = np.sort(chance.choice(HOURS, 2 * count, replace=False)).tolist()
    times = [NEW_YEAR + dt.timedelta(hours=hour) for hour in hours]
    is_seamless = chance.random(count) < 0.5
    for number in range(count):
        is_first, is_last = number == 0, number == count - 1
        end = times[2 * number + (2 if is_seamless[number] and not is_last else 1)]
        yield (
            tailnum,
            None if is_first and chance.random() < 0.3 else times[2 * number],
            (None, FAR, end, end)[chance.integers(4)] if is_last else end,
            int(chance.integers(2, 400)),
            None if chance.random() < 0.1 else f"livery {number}",
        )


@pytest.fixture(scope="module")
def sidecar(module_folder: Path) -> Iterator[Sidecar]:
    """A sidecar with a history of most planes that fly, and of one that does not."""
    (module_folder / "flights").mkdir()
    flights = write_flights(module_folder / "flights", limit=FLIGHTS)
    tailnums = pc.unique(flights["tailnum"]).drop_null().to_pylist()
    some = [tailnum for number, tailnum in enumerate(tailnums) if number % 9]
    history = plane_history([*some, "N0"])
    ends = {"valid_from": "valid_from", "valid_to": "valid_to"}
    dimensions = {
        "planes": parquet(module_folder, "planes", history, "tailnum", versions=ends),
        # Without ends, a version lasts until the next one begins.
        "planes_since": parquet(
            *(module_folder, "since", history, "tailnum"), versions={"valid_from": "valid_from"}
        ),
    }
    process = configured(module_folder, dimensions)
    with process.running():
        yield Sidecar(url_of(process), connect_timeout=WAIT_S)


@pytest.fixture(scope="module")
def flights(spark_session: SparkSession, sidecar: Sidecar, module_folder: Path) -> DataFrame:
    """Flights, some without a time, and many at the border of two versions."""
    del sidecar  # it has written them
    return timed(spark_session.read.parquet(str(module_folder / "flights")))


def timed(flights: DataFrame) -> DataFrame:
    """Flight, plane and time."""
    hour = F.date_trunc("hour", "event_time")  # versions begin and end on the hour
    time = F.when(F.col("flight_id") % 3 == 0, hour).otherwise(F.col("event_time"))
    time = F.when(F.col("flight_id") % 101 != 0, time)
    return flights.select("flight_id", "tailnum", time.alias("ts"))


@pytest.fixture(scope="module")
def versions(spark_session: SparkSession, flights: DataFrame, module_folder: Path) -> DataFrame:
    """The history for a plain join."""
    del flights  # the history is written with them
    return spark_session.read.parquet(str(module_folder / "planes.parquet"))


def range_join(records: DataFrame, versions: DataFrame) -> DataFrame:
    """Spark's own range join."""
    ts, begin, end = (F.col(name) for name in ("ts", "valid_from", "valid_to"))
    is_valid: Column = (begin.isNull() | (begin <= ts)) & (end.isNull() | (ts < end))
    matched = records.join(
        F.broadcast(versions.withColumnRenamed("tailnum", "plane")),
        (F.col("tailnum") == F.col("plane")) & is_valid & ts.isNotNull(),
        "left",
    )
    return matched.select(*records.columns, *ADDED)


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    """Assert that the frames are equal as multisets of rows."""
    assert found.count() == expected.count()
    assert found.exceptAll(expected).count() == 0
    assert expected.exceptAll(found).count() == 0


@pytest.mark.parametrize(
    ("dimension", "mode"), [("planes", "ordered"), ("planes_since", "unordered")]
)
def test_batch_output_is_that_of_a_range_join(
    sidecar: Sidecar,
    flights: DataFrame,
    versions: DataFrame,
    *,
    dimension: str,
    mode: Literal["ordered", "unordered"],
) -> None:
    """Each flight has the version of its plane that was valid at its time."""
    join = sidecar.lookup_join(dimension, on="tailnum", as_of="ts", columns=ADDED, mode=mode)

    enriched = flights.transform(join).localCheckpoint()

    if dimension == "planes_since":
        by_time = Window.partitionBy("tailnum").orderBy(F.col("valid_from").asc_nulls_first())
        versions = versions.withColumn("valid_to", F.lead("valid_from").over(by_time))
    assert_same(enriched, range_join(flights, versions))
    assert enriched.where("seats IS NOT NULL").count() > FLIGHTS // 10
    assert enriched.where("ts = valid_from").count() > 10


@pytest.mark.parametrize("kind", ["date", "timestamp_ntz"])
def test_time_without_zone_is_one_of_utc(
    spark_session: SparkSession,
    sidecar: Sidecar,
    flights: DataFrame,
    versions: DataFrame,
    *,
    kind: str,
) -> None:
    """Dates and times without zone are UTC in each time zone of the session."""
    some = flights.where(f"flight_id < {FLIGHTS // 10}")
    records = some.withColumn("ts", F.col("ts").cast(kind)).localCheckpoint()
    join = sidecar.lookup_join("planes", on="tailnum", as_of="ts", columns=ADDED)

    spark_session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        enriched = records.transform(join).localCheckpoint()
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", "UTC")

    moments = records.withColumn("ts", F.col("ts").cast("timestamp")).localCheckpoint()
    found = enriched.withColumn("ts", F.col("ts").cast("timestamp"))
    assert_same(found, range_join(moments, versions))


def test_stream_output_is_that_of_a_range_join(
    sidecar: Sidecar,
    flights: DataFrame,
    versions: DataFrame,
    *,
    module_folder: Path,
    tmp_path: Path,
) -> None:
    """An inner join of a stream with watermarks drops flights without a valid version."""
    path, session = str(module_folder / "flights"), flights.sparkSession
    stream = timed(session.readStream.schema(session.read.parquet(path).schema).parquet(path))
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

    output = written(stream.transform(join), tmp_path)

    assert_same(output, range_join(flights, versions).where("seats IS NOT NULL"))
