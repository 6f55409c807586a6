"""A driver for another version of Spark: each operation of the client once.

Prints version and rows as JSON; imports the client only.
"""

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",
}


def main(url: str) -> dict[str, Any]:
    """Return the rows of each operation for the keys 0 to 3."""
    builder = SparkSession.builder.master("local[2]")
    for name, text in SETTINGS.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    sidecar = Sidecar(url, connect_timeout=20)
    records = session.range(0, 4, numPartitions=2)
    joined = records.transform(sidecar.lookup_join("things", on="id", event_time="id"))
    named = sidecar.lookup_udf("things", columns=["name"])("id")["name"].alias("name")
    result = {
        "version": pyspark.__version__,
        "types": dict(joined.dtypes),
        "joined": _texts(joined),
        "named": _texts(records.select("id", named)),
        "spread": _texts(records.transform(sidecar.repartition_for("things", on="id"))),
    }
    session.stop()
    return result


def _texts(frame: DataFrame) -> list[list[str | None]]:
    columns = [F.col(name).cast("string") for name in frame.columns]
    return sorted([list(row) for row in frame.select(*columns).collect()])


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 -- what the test reads
