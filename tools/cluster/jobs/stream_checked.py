"""Enrich a stream of numbers with the dimension `customers`, and print the counts of each batch.

    stream_checked.py ROWS PARTITIONS

Batch n has the numbers from n times ROWS on. The stream begins when the file /tmp/begin exists,
and ends after /tmp/end exists.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  its usual name

from sidelook import Sidecar

ROWS, PARTITIONS = map(int, sys.argv[1:])
CUSTOMERS = 100_000  # keys above have no row


def verify(batch: DataFrame, number: int) -> None:
    """Print what a batch has: rows, distinct numbers of those that it should have, wrong rows."""
    first = number * ROWS
    expected = F.when(
        F.col("key") < CUSTOMERS, F.concat(F.lit("name "), F.col("key").cast("string"))
    )
    own = F.col("value").between(first, first + ROWS - 1)
    counts = batch.agg(
        F.count("*").alias("rows"),
        F.countDistinct(F.when(own, F.col("value"))).alias("distinct"),
        F.count_if(~F.col("name").eqNullSafe(expected)).alias("wrong"),
    )
    (row,) = counts.collect()
    print("BATCH", json.dumps({"batch": number, **row.asDict()}), flush=True)


spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
dims = Sidecar("unix:///run/sidelook/sidelook.sock")
numbers = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", ROWS)
    .option("numPartitions", PARTITIONS)
    .load()
)
join = dims.lookup_join(
    "customers", on={"key": "id"}, schema="name string, segment string, tier int", timeout=60.0
)
# Half of the records have a few keys, which workers find in the cache of the sidecar.
rare = F.col("value") * 7919 % (2 * CUSTOMERS)
frequent = F.col("value") % 500 * (CUSTOMERS // 250)
key = F.when(F.col("value") % 2 == 0, rare).otherwise(frequent)
enriched = numbers.withColumn("key", key).transform(join)
while not Path("/tmp/begin").exists():
    time.sleep(0.1)
query = enriched.writeStream.foreachBatch(verify).trigger(processingTime="1 second").start()
while not query.awaitTermination(1):
    if Path("/tmp/end").exists():
        query.stop()
spark.stop()
