"""Two streaming queries after a lookup join: all rows, and counts by event-time windows.

As a program, a driver that runs them from their checkpoints until it is killed.
"""

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.streaming.query import StreamingQuery

from spark_client import Sidecar
from tests.spark_session import local_session

FILES = 8
FILES_OF_A_BATCH = 2
ROWS = 20_000  # of each file: enough for a batch to be seen while it runs
SCHEMA = "line long, id long, at timestamp"
QUERIES = ("rows", "windows")


@dataclass(frozen=True, slots=True)
class RestartQueries:
    """Both queries with their folders and their sidecar."""

    url: str
    events: Path
    folder: Path
    held_from: int | None = None  # from the middle of this batch on, the rows block

    def write_events(self) -> None:
        """Write files of events a second apart, with unknown customers, duplicates and NULLs."""
        self.events.mkdir()
        for number in range(FILES):
            lines = np.arange(number * ROWS, (number + 1) * ROWS)
            keys = (lines * 7919) % 1500  # a third of them has no row
            table = pa.table(
                {
                    "line": lines,
                    "id": pa.array(keys, mask=lines % 100 == 0),
                    "at": pa.array(lines * 1_000_000, pa.timestamp("us", tz="UTC")),
                }
            )
            pq.write_table(table, self.events / f"{number:02}.parquet")

    def run(self, session: SparkSession) -> None:
        """Run both queries, from their checkpoints if any, to the end of the input."""
        own = session.newSession()
        own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        enriched = self._enriched(own)
        windows = enriched.groupBy(F.window("at", "1000 seconds"), "tier").count()
        rows = enriched
        if self.held_from is not None:
            rows = enriched.mapInArrow(_HeldBatches(self.held_from), enriched.schema)
        for query in [self._start(rows, "rows"), self._start(windows, "windows")]:
            query.awaitTermination()

    def output(self, session: SparkSession) -> dict[str, pa.Table]:
        """The output of each query, read through its sink and sorted by all columns."""
        return {name: _sorted(session.read.parquet(str(self.folder / name))) for name in QUERIES}

    def committed_batches(self) -> int:
        """The number of batches of the rows in their sink."""
        return len(self._manifests())

    def stray_files(self) -> int:
        """The number of files of unfinished batches, which no reader sees."""
        counted = sum(len(each.read_text().splitlines()) - 1 for each in self._manifests())
        return len(list((self.folder / "rows").glob("*.parquet"))) - counted

    def _manifests(self) -> list[Path]:
        # One for each batch: a line with the version, and one for each of its files.
        log = self.folder / "rows" / "_spark_metadata"
        return [each for each in log.glob("*") if each.name.isdigit()]

    def _enriched(self, session: SparkSession) -> DataFrame:
        events = (
            session.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", FILES_OF_A_BATCH)
            .parquet(str(self.events))
        )
        join = Sidecar(self.url, connect_timeout=20).lookup_join(
            "customers",
            on="id",
            mode="unordered",
            capacity=1000,
            event_time="at",
            watermark_interval="1000 seconds",
        )
        return events.withWatermark("at", "10 seconds").transform(join)

    def _start(self, stream: DataFrame, name: str) -> StreamingQuery:
        return (
            stream.writeStream.format("parquet")
            .option("path", str(self.folder / name))
            .option("checkpointLocation", str(self.folder / f"{name} checkpoint"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )


@dataclass(frozen=True, slots=True)
class _HeldBatches:
    """A `mapInArrow` function that blocks after the first rows of a micro-batch."""

    first: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId")
        assert number is not None
        for batch in batches:
            yield batch
            if int(number) >= self.first:
                threading.Event().wait()  # for the end of the process


def _sorted(frame: DataFrame) -> pa.Table:
    table = frame.toArrow().flatten()
    return table.sort_by([(name, "ascending") for name in table.column_names])


def main(url: str, events: str, folder: str, held_from: str) -> None:
    """Run the queries; from batch `held_from` on, the rows block forever."""
    queries = RestartQueries(url, Path(events), Path(folder), int(held_from))
    queries.run(local_session(queries.folder, batch_rows=1000))


if __name__ == "__main__":
    main(*sys.argv[1:])
