"""A user's job with installed packages only: batch, SQL and a restarted stream over relations.

Runs on Python 3.10, without this project's tests. Arguments: the sidecar's URL and an empty folder.
Prints a JSON object of results, `{name: [[value, …], …]}`.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.streaming.query import StreamingQuery

from sidelook import Sidecar

EVENTS_PER_FILE = 1_000
FILES = 6
SQL = """
SELECT id, lookup_parts(id).name, lookup_parts(id).tags, lookup_upper_parts(id).upper
FROM ids ORDER BY id
"""


def joined(ids: DataFrame, dims: Sidecar) -> DataFrame:
    """Each id with how often it occurs and the rows of a table, a view and a query."""
    rows = ids
    for dimension in ("parts", "upper_parts", "totals"):
        rows = rows.transform(dims.lookup_join(dimension, on="id"))
    names = ("id", "name", "tags", "upper", "total")
    counts = rows.groupBy(*names).agg(F.count("*").alias("n"))
    return counts.orderBy("id").select(*names, "n")


class Stream:
    """A stream of files, enriched from the partitioned table."""

    def __init__(self, spark: SparkSession, dims: Sidecar, folder: Path) -> None:
        self._spark = spark
        self._dims = dims
        self._folder = folder

    def write(self, files: range) -> None:
        """Add source files, one micro-batch each."""
        for number in files:
            first = number * EVENTS_PER_FILE
            events = self._spark.range(first, first + EVENTS_PER_FILE, 1, 1)
            events.select(
                F.col("id").alias("event"), (F.col("id") % 1100).cast("int").alias("id")
            ).write.mode("append").parquet(str(self._folder / "source"))

    def start(self) -> StreamingQuery:
        """Start from the checkpoint, if there is one."""
        source = self._spark.readStream.schema("event long, id int")
        events = source.option("maxFilesPerTrigger", 1).parquet(str(self._folder / "source"))
        enriched = events.transform(self._dims.lookup_join("parts", on="id", columns=["name"]))
        sink = enriched.writeStream.format("parquet").option("path", str(self._folder / "sink"))
        return sink.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def rows(self) -> list[list[object]]:
        """All that was written, by event."""
        written = self._spark.read.parquet(str(self._folder / "sink")).orderBy("event")
        return [list(row) for row in written.collect()]


def main(url: str, folder: Path) -> None:
    """Run all parts and print their results."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    dims = Sidecar(url)
    ids = session.range(100_000).select((F.col("id") % 1200).cast("int").alias("id"))
    batch = [list(row) for row in joined(ids, dims).collect()]

    session.udf.register("lookup_parts", dims.lookup_udf("parts"))
    session.udf.register("lookup_upper_parts", dims.lookup_udf("upper_parts"))
    ids.distinct().createOrReplaceTempView("ids")
    sql = [list(row) for row in session.sql(SQL).collect()]

    stream = Stream(session, dims, folder)
    stream.write(range(FILES // 2))
    query = stream.start()
    query.processAllAvailable()
    stream.write(range(FILES // 2, FILES))
    query.stop()  # perhaps within a micro-batch
    query = stream.start()
    query.processAllAvailable()
    query.stop()
    results = {"versions": [[sys.version_info[:2], session.version]], "batch": batch, "sql": sql}
    print(json.dumps({**results, "stream": stream.rows()}))  # noqa: T201 -- the result
    session.stop()


main(sys.argv[1], Path(sys.argv[2]))
