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
    # Small files are spread over the cores instead of being put together.
    "spark.sql.files.minPartitionNum": str(CORES),
    "spark.sql.files.openCostInBytes": "0",
    # The older form, which is the default, has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(log: Path, *, interrupt: Interrupt | None = None) -> Iterator[SparkSession]:
    """A session that says what it has to say in `log`; stopped at the end.

    While it is there an interrupt is deferred, for who uses it to check.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need what this process has
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("sidelook-demo")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    heeds = signal.getsignal(signal.SIGINT)
    with _stderr_to(log):
        session = builder.getOrCreate()
    # Its context took Ctrl-C for itself, to ask Spark something in the midst of another question.
    signal.signal(signal.SIGINT, heeds)
    with nullcontext() if interrupt is None else interrupt.deferred():
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What is started in here writes its errors to a file; we ourselves do so only for a while."""
    kept = os.dup(STDERR)
    with path.open("wb") as log:
        os.dup2(log.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


Mode = Literal["unordered", "ordered", "key_ordered"]


def stream(
    session: SparkSession, workspace: Workspace, *, endpoint: str, mode: Mode
) -> StreamingQuery:
    """Start to enrich all flights that are there, in micro-batches; the query ends by itself."""
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
    flights: DataFrame,
    endpoint: str,
    *,
    mode: Mode,
    dimensions: Sequence[Dimension] = DIMENSIONS,
) -> DataFrame:
    """Add to each flight what the dimensions know about it."""
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
