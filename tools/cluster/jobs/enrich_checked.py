"""Enrich numbers with the dimension `customers`, verify each row, and print the counts as JSON.

    enrich_checked.py RECORDS HOLD_S

The job lasts for HOLD_S seconds after its result, so that its executors can be watched.
"""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  its usual name

from sidelook import Sidecar

records, hold_s = map(int, sys.argv[1:])
spark = SparkSession.builder.getOrCreate()
dims = Sidecar("unix:///run/sidelook/sidelook.sock", connect_timeout=20.0)
numbers = spark.range(0, records, numPartitions=4).withColumn("key", F.col("id") % 200_000)
join = dims.lookup_join(
    "customers", on={"key": "id"}, schema="name string, segment string, tier int", timeout=60.0
)
expected = F.when(F.col("key") < 100_000, F.concat(F.lit("name "), F.col("key").cast("string")))
counts = numbers.transform(join).agg(
    F.count("*").alias("rows"),
    F.countDistinct("id").alias("distinct"),
    F.sum(F.when(F.col("name").eqNullSafe(expected), 0).otherwise(1)).alias("wrong"),
)
(row,) = counts.collect()
print("RESULT", json.dumps(row.asDict()), flush=True)
time.sleep(hold_s)
spark.stop()
