"""A repartitioning by key group before a lookup join, with a real sidecar."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tools.processes.sidecar_process import SidecarProcess


def test_stream_is_divided_and_enriched(
    spark_session: SparkSession, sidecar_process: SidecarProcess, tmp_path: Path
) -> None:
    """A stream has its keys together, the dimension's own columns by default, and all its rows."""
    sidecar = Sidecar(url_of(sidecar_process))
    records = spark_session.range(0, 500).select((F.col("id") % 40).alias("id"))
    records.write.parquet(str(tmp_path / "in"))
    stream = spark_session.readStream.schema("id long").parquet(str(tmp_path / "in"))
    divided = stream.transform(sidecar.repartition_for("customers", partitions=4))
    joined = divided.transform(sidecar.lookup_join("customers", on="id", mode="key_ordered"))

    query = (
        joined.withColumn("partition", F.spark_partition_id())
        .writeStream.format("memory")
        .queryName("divided")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    rows = spark_session.table("divided").collect()
    places = {(row["id"], row["partition"]) for row in rows}
    assert len(rows) == 500
    assert all(row["name"] == f"customer {row['id']}" for row in rows)
    assert len(places) == 40
    assert {partition for _, partition in places} == {0, 1, 2, 3}
