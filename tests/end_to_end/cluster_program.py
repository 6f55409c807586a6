"""A driver with two executor processes that share a sidecar.

Prints the jobs whose rows differ from Spark's own join.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from tests.end_to_end.sidecars import CUSTOMERS
from tests.end_to_end.spark_cluster import BatchGate, cluster_session
from tests.end_to_end.spark_frames import fingerprint

RECORDS = 20_000  # of each of two partitions
PADDING = 1000  # bytes of each record: a partition exceeds all buffers
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # they live for a few seconds
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


def main(url: str, folder: str) -> list[str]:
    """Return the names of the jobs with wrong rows."""
    session = cluster_session(Path(folder), SETTINGS, executors=2)
    numbers = session.range(0, 2 * RECORDS, numPartitions=2)
    key, padding = (F.col("id") % 1500).alias("id"), F.lpad("id", PADDING, " ").alias("padding")
    records = numbers.select(F.col("id").alias("line"), key, padding)
    join = Sidecar(url, connect_timeout=20).lookup_join("customers", on="id", mode="unordered")
    enriched = records.transform(join)
    customers = session.createDataFrame(CUSTOMERS)
    joined = records.join(F.broadcast(customers), on="id", how="left")
    expected = fingerprint(joined.select(enriched.columns))
    jobs = _jobs(enriched, Path(folder))
    wrong = [name for name, job in jobs.items() if fingerprint(job) != expected]
    session.stop()
    return wrong


def _jobs(enriched: DataFrame, folder: Path) -> dict[str, DataFrame]:
    functions: dict[str, Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]] = {
        "side by side": BatchGate(folder, rows=100),
        "tried again": FirstAttempt(folder, [fail, lose_executor]),
    }
    return {name: enriched.mapInArrow(each, enriched.schema) for name, each in functions.items()}


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """A `mapInArrow` function that ends the first attempt of each partition after some rows.

    The way of each end is the name of a file that it leaves.
    """

    folder: Path
    ends: Sequence[Callable[[], NoReturn]]  # by partition

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, unchanged."""
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                end = self.ends[context.partitionId()]
                (self.folder / end.__name__).touch()
                end()


def fail() -> NoReturn:
    """Fail the task."""
    raise RuntimeError("the first attempt fails")


def lose_executor() -> NoReturn:
    """Kill the JVM of the executor, as on a lost node."""
    daemon = psutil.Process().parent()
    executor = None if daemon is None else daemon.parent()
    assert executor is not None
    executor.kill()
    while True:  # until Spark's daemon reads its broken pipe
        signal.pause()


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 -- what the test reads
