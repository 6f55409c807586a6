"""Streaming query of the demonstration: files in, four lookups in one pass, files out."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from demo.dimension import DIMENSIONS, Dimension
from demo.interrupt import Interrupt
from spark_client import Sidecar

CORES = 2
STDERR = 2  # the file descriptor
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Both cores run tasks: a collector with threads of its own would compete with them.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    # Spread small files over the cores instead of combining them.
    "spark.sql.files.minPartitionNum": str(CORES),
    "spark.sql.files.openCostInBytes": "0",
    # The default, INT96, has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
Mode = Literal["unordered", "ordered", "key_ordered"]
ORDER: dict[Mode, str] = {
    "unordered": "a flight is emitted when its row arrives, and may overtake others",
    "ordered": "flights of a partition keep their order",
    "key_ordered": "flights of the same plane keep their order",
}


@contextmanager
def spark_session(log: Path, *, interrupt: Interrupt | None = None) -> Iterator[SparkSession]:
    """Start a session that logs to `log` and stop it at the end; `interrupt` is deferred."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers need the same packages
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("sidelook-demo")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    handler = signal.getsignal(signal.SIGINT)
    with _stderr_to(log):
        session = builder.getOrCreate()
    # Spark replaces the handler by one that calls the JVM, even during another call.
    signal.signal(signal.SIGINT, handler)
    with nullcontext() if interrupt is None else interrupt.deferred():
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr within the block; processes started in it keep the file."""
    kept = os.dup(STDERR)
    with path.open("wb") as log:
        os.dup2(log.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


@dataclass(frozen=True, slots=True)
class FileStream:
    """A stream of the flights' files into a folder, in micro-batches of some files."""

    enriched: Path
    checkpoint: Path
    files_per_batch: int

    def start(
        self, session: SparkSession, flights: Path, *, endpoint: str, mode: Mode
    ) -> StreamingQuery:
        """Start a query that enriches the existing flights and then ends."""
        folder = str(flights)
        read = (
            session.readStream.schema(session.read.parquet(folder).schema)
            .option("maxFilesPerTrigger", self.files_per_batch)
            .parquet(folder)
        )
        return (
            enrich(read, endpoint, mode=mode)
            .writeStream.format("parquet")
            .option("path", str(self.enriched))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )


def enrich(
    flights: DataFrame, endpoint: str, *, mode: Mode, dimensions: Sequence[Dimension] = DIMENSIONS
) -> DataFrame:
    """Add the columns of the dimensions to each flight, in one pass."""
    sidecar = Sidecar(endpoint)
    lookups = [
        sidecar.lookup_join(
            dimension.name,
            on=dimension.on,
            columns=list(dimension.columns),
            prefix=dimension.prefix,
            status_column=dimension.status_column,
        )
        for dimension in dimensions
    ]
    joins = sidecar.lookup_joins(
        lookups, mode=mode, event_time="event_time", watermark_delay="1 minute"
    )
    return flights.transform(joins)
