"""Executor program of the rehearsal: Spark jobs in `local-cluster` that verify each row.

Runs in the namespaces of the pod as its user, and prints one line of JSON for each job.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tools.processes.spark_cluster import BatchGate, cluster_session

RECORDS = 10_000
PADDING = 6000  # bytes of each record: a partition exceeds all buffers on its way
FIRST = "at the start"
LAST = "while the pod is deleted"
SCHEMA = "name string, segment string, tier int"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # executors run for a minute
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


def main(url: str, customers: str, folder: str, *gates: str) -> None:
    """Run one job at once, one paused by each gate, and one on SIGTERM."""
    is_ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ending.set())
    session = cluster_session(Path(folder), SETTINGS, executors=1)
    job = _Job(session, url, int(customers))
    job.run(FIRST)
    for name in gates:
        gate = Path(folder) / name
        gate.mkdir()
        job.run(name, through=BatchGate(gate, rows=100))
    is_ending.wait()
    job.run(LAST)
    session.stop()


class _Job:
    """Enriches a table of numbers; the database has rows for the lower half."""

    def __init__(self, session: SparkSession, url: str, customers: int) -> None:
        self._session = session
        self._sidecar = Sidecar(url, connect_timeout=30)
        self._customers = customers

    def run(
        self,
        name: str,
        *,
        through: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None,
    ) -> None:
        """Print the number of rows, of distinct rows, and of wrong rows."""
        enriched = self._enriched()
        if through:
            enriched = enriched.mapInArrow(through, enriched.schema)
        counts = enriched.agg(
            F.count("*").alias("rows"),
            F.countDistinct("line").alias("lines"),
            F.sum(F.when(self._is_right(), 0).otherwise(1)).alias("wrong"),
        )
        (row,) = counts.collect()
        print(json.dumps({"job": name, **row.asDict()}), flush=True)

    def _enriched(self) -> DataFrame:
        numbers = self._session.range(0, RECORDS, numPartitions=1)
        key = (F.col("id") % (2 * self._customers)).alias("id")
        padding = F.lpad(F.col("id").cast("string"), PADDING, " ").alias("padding")
        records = numbers.select(F.col("id").alias("line"), key, padding)
        join = self._sidecar.lookup_join("customers", on="id", schema=SCHEMA)
        return records.transform(join)

    def _is_right(self) -> "pyspark.sql.Column":
        known = F.col("id") < self._customers
        expected = {
            "name": F.concat(F.lit("name "), F.col("id").cast("string")),
            "segment": F.concat(F.lit("segment "), (F.col("id") % 7).cast("string")),
            "tier": (F.col("id") % 5).cast("int"),
        }
        is_right = F.lit(True)  # noqa: FBT003 -- PySpark takes it by position
        for name, column in expected.items():
            is_right &= F.col(name).eqNullSafe(F.when(known, column))
        return is_right


if __name__ == "__main__":
    main(*sys.argv[1:])
