"""A program for Spark Connect: the same calls as anywhere else, printed as JSON.

Run in a process of its own, because a process has either a classic or a Connect session.
"""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar


def main(url: str) -> dict[str, object]:
    """A lookup join on a batch, and one on a stream with an aggregation behind it."""
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.conf.set("spark.sql.shuffle.partitions", "2")
    join = Sidecar(url, connect_timeout=20).lookup_join("customers", on="id", columns=["tier"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = session.range(0, 100, numPartitions=1).select(
            "id", F.timestamp_seconds("id").alias("at")
        )
        events.write.parquet(str(folder / "events"))
        stream = session.readStream.schema("id long, at timestamp").parquet(str(folder / "events"))
        enriched = stream.withWatermark("at", "1 second").transform(join)
        query = (
            enriched.groupBy(F.window("at", "10 seconds"))
            .count()
            .writeStream.format("parquet")
            .option("path", str(folder / "output"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        windows = session.read.parquet(str(folder / "output")).count()
        tiers = [row["tier"] for row in events.limit(7).transform(join).orderBy("id").collect()]
    session.stop()
    return {"session": type(session).__module__, "tiers": tiers, "windows": windows}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201 -- what the test reads
