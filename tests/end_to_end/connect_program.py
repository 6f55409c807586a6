"""A program for Spark Connect: the same calls in all modes; prints the results as JSON.

A process has either a classic or a Connect session.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from spark_client.driver.input_columns import On
from spark_client.lookup_settings import OutputMode
from tests.end_to_end.spark_frames import written


def main(url: str) -> dict[str, object]:
    """Run lookups on a batch, also in SQL, and one on a stream before an aggregation."""
    os.environ["SPARK_TESTING"] = "1"  # Spark then takes any free port for its server
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.conf.set("spark.sql.shuffle.partitions", "2")
    sidecar = Sidecar(url, connect_timeout=20)
    joins = {
        mode.value: sidecar.lookup_join("customers", on="id", columns=["tier"], mode=mode.value)
        for mode in OutputMode
    }
    joins["udf"] = sidecar.lookup_join("customers", on="id", columns=["tier"], via="udf")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = session.range(0, 100, numPartitions=1).select(
            "id", F.timestamp_seconds("id").alias("at")
        )
        events.write.parquet(str(folder / "events"))
        stream = session.readStream.schema("id long, at timestamp").parquet(str(folder / "events"))
        enriched = stream.withWatermark("at", "1 second").transform(joins["ordered"])
        windows = written(enriched.groupBy(F.window("at", "10 seconds")).count(), folder).count()
        few = events.where("id < 7")
        tiers = {mode: _tiers(few.transform(join)) for mode, join in joins.items()}
        divided = few.transform(sidecar.repartition_for("customers"))
        tiers["divided"] = _tiers(divided.transform(joins["key_ordered"]))
        nested = few.select("id", F.struct("id").alias("key"))
        keys: list[tuple[str, On]] = [("path", "key.id"), ("expression", F.abs("id"))]
        for kind, on in keys:
            divided = nested.transform(sidecar.repartition_for("customers", on=on))
            tiers[kind] = _tiers(divided.transform(sidecar.lookup_join("customers", on=on)))
        tiers |= _tiers_in_sql(session, sidecar, few)
    session.stop()
    return {"session": type(session).__module__, "tiers": tiers, "windows": windows}


def _tiers_in_sql(session: SparkSession, sidecar: Sidecar, few: DataFrame) -> dict[str, list[int]]:
    few.createOrReplaceTempView("few")
    for deterministic in (True, False):
        prefix = "sql_" if deterministic else "once_"
        sidecar.register(session, prefix=prefix, deterministic=deterministic)
    call = "SELECT id, {name}_customers(id).tier AS tier FROM few"
    return {name: _tiers(session.sql(call.format(name=name))) for name in ("sql", "once")}


def _tiers(enriched: DataFrame) -> list[int]:
    return [row["tier"] for row in enriched.orderBy("id").collect()]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201 -- what the test reads
