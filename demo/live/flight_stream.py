"""The stream of a live run: the flights of one day in each micro-batch, without an end.

What it is enriched with, and who looks at it, is decided by those who start it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "200 milliseconds"
NUMBER = "value"  # what the source counts in


def flight_stream(session: SparkSession, day: pa.Table) -> DataFrame:
    """The flights, again and again, in one partition: so few are through soonest in one task."""
    numbers = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", day.num_rows)
        .option("numPartitions", 1)
        .load()
    )
    schema = session.createDataFrame(day.slice(0, 1)).schema

    def flown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = pa.array(batch.column(NUMBER).to_numpy() % day.num_rows)
            yield from day.take(places).combine_chunks().to_batches()

    return numbers.select(NUMBER).mapInArrow(flown, schema)


def started(
    enriched: DataFrame, checkpoint: Path, on_batch: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the stream; each micro-batch is handed to `on_batch`, in a thread of Spark."""
    return (
        enriched.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )
