"""The streaming query of the demonstration: files in, four lookup joins, files out.

All that a user of Sidelook writes stands in `enrich`; the rest is plain Spark.
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from demo.dimension import DIMENSIONS, Dimension
from demo.spark_session import CORES
from demo.workspace import Workspace
from spark_client import Sidecar

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
