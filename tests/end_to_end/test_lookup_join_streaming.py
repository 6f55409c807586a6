"""Lookup joins in Spark against the real sidecar: streaming queries."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tools.processes.sidecar_process import SidecarProcess

pytestmark = pytest.mark.real_path

FILES = 4
ROWS = 100  # of each file, a second apart
SCHEMA = "id long, at timestamp"


@pytest.fixture
def events(spark_session: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of files, one in each micro-batch, in event-time order."""
    for number in range(FILES):
        start = number * ROWS
        spark_session.range(start, start + ROWS, numPartitions=1).select(
            "id", F.timestamp_seconds("id").alias("at")
        ).write.parquet(str(tmp_path / "events" / f"{number}"))
    return (
        spark_session.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(tmp_path / "events"))
    )


def written(stream: DataFrame, folder: Path) -> DataFrame:
    """Run a stream in append mode to the end of its input; what it wrote."""
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return stream.sparkSession.read.parquet(str(folder / "output"))


def test_every_record_comes_out_once(
    events: DataFrame, sidecar_process: SidecarProcess, tmp_path: Path
) -> None:
    """Over several micro-batches, unordered between watermarks, each record is enriched once."""
    sidecar = Sidecar(url_of(sidecar_process))
    join = sidecar.lookup_join(
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
    """The watermark of the input reaches an aggregation behind the join, in append mode."""
    sidecar = Sidecar(url_of(sidecar_process))
    enriched = events.withWatermark("at", "1 second").transform(
        sidecar.lookup_join("customers", on="id", columns=["tier"])
    )
    counts = enriched.groupBy(F.window("at", "100 seconds"), "tier").count()

    output = written(counts, tmp_path)

    rows = output.groupBy("window.start").agg(F.sum("count").alias("records")).collect()
    assert {row["records"] for row in rows} == {ROWS}
    assert len(rows) >= FILES - 1  # the last window stays open
