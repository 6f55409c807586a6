"""Streaming lookup joins in Spark against a real sidecar."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import url_of
from tests.end_to_end.spark_frames import written
from tools.processes.sidecar_process import SidecarProcess

FILES = 4
ROWS = 100  # of each file, a second apart


@pytest.fixture
def events(spark_session: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream with a file in each micro-batch, in event-time order."""
    for number in range(FILES):
        start = number * ROWS
        spark_session.range(start, start + ROWS, numPartitions=1).select(
            "id", F.timestamp_seconds("id").alias("at")
        ).write.parquet(str(tmp_path / "events" / f"{number}"))
    return (
        spark_session.readStream.schema("id long, at timestamp")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(tmp_path / "events"))
    )


@pytest.mark.real_path
def test_every_record_comes_out_once(
    events: DataFrame, sidecar_process: SidecarProcess, tmp_path: Path
) -> None:
    """Over several micro-batches each record is enriched once, unordered between watermarks."""
    join = Sidecar(url_of(sidecar_process)).lookup_join(
        "customers",
        on="id",
        mode="unordered",
        event_time="at",
        watermark_delay="5 seconds",
        watermark_interval="10 seconds",
        status_column="_lookup",
    )

    output = written(events.transform(join), tmp_path)

    rows = output.select("id", "name", "tier", "_lookup.error").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (number, f"customer {number}", number % 5, None) for number in range(FILES * ROWS)
    ]


def test_windows_close_after_a_lookup_join(
    events: DataFrame, sidecar_process: SidecarProcess, tmp_path: Path
) -> None:
    """The watermark of the input reaches an aggregation after the join, in append mode."""
    join = Sidecar(url_of(sidecar_process)).lookup_join(
        "customers", on="id", columns=["tier"], event_time="at", via="udf"
    )
    enriched = events.withWatermark("at", "1 second").transform(join)
    counts = enriched.groupBy(F.window("at", "100 seconds"), "tier").count()

    output = written(counts, tmp_path)

    rows = output.groupBy("window.start").agg(F.sum("count").alias("records")).collect()
    assert {row["records"] for row in rows} == {ROWS}
    assert len(rows) >= FILES - 1  # the last window stays open
