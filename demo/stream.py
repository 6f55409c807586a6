"""Streaming query of the demonstration: files in, four lookup joins, files out."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from demo.dimension import DIMENSIONS, Dimension
from demo.flights import Workspace
from demo.interrupt import Interrupt
from spark_client import Sidecar

CORES = 2
STDERR = 2  # the file descriptor
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
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
    "key_ordered": "flights with the same key keep their order",
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


def stream(
    session: SparkSession, workspace: Workspace, *, endpoint: str, mode: Mode
) -> StreamingQuery:
    """Start a query that enriches the existing flights in micro-batches and then ends."""
    folder = str(workspace.flights)
    flights = (
        session.readStream.schema(session.read.parquet(folder).schema)
        .option("maxFilesPerTrigger", CORES)
        .parquet(folder)
    )
    return (
        enrich(flights, endpoint, mode=mode)
        .writeStream.format("parquet")
        .option("path", str(workspace.enriched))
        .option("checkpointLocation", str(workspace.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def enrich(
    flights: DataFrame, endpoint: str, *, mode: Mode, dimensions: Sequence[Dimension] = DIMENSIONS
) -> DataFrame:
    """Add the columns of the dimensions to each flight."""
    sidecar = Sidecar(endpoint)
    for dimension in dimensions:
        join = sidecar.lookup_join(
            dimension.name,
            on=dimension.on,
            columns=list(dimension.columns),
            mode=mode,
            event_time="event_time",
            watermark_delay="1 minute",
            prefix=dimension.prefix,
            status_column=dimension.status_column,
        )
        flights = flights.transform(join)
    return flights
