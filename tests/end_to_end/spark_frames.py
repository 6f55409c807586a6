"""Spark jobs in tests: fingerprints, finished streams, and the Python workers of this process."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

_DAEMON = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of rows and the sum of their 64-bit hashes."""

    rows: int
    hashes: Decimal | None


def fingerprint(frame: DataFrame) -> Fingerprint:
    """Run the query; equal for equal multisets of rows, columns by position."""
    hashes = F.xxhash64(*frame.columns).cast("decimal(20)")
    row = frame.select(hashes.alias("hash")).agg(F.count("*"), F.sum("hash")).collect()[0]
    return Fingerprint(*row)


def written(stream: DataFrame, folder: Path) -> DataFrame:
    """Run a stream in append mode to the end of its input; the rows that it wrote."""
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return stream.sparkSession.read.parquet(str(folder / "output"))


def python_workers() -> set[int]:
    """The process ids of the workers that Spark's daemons have forked."""
    return {each.pid for each in psutil.Process().children(recursive=True) if _is_worker(each)}


def _is_worker(process: psutil.Process) -> bool:
    try:
        # A fork has the arguments of its parent.
        return _is_daemon(process) and _is_daemon(process.parent())
    except psutil.NoSuchProcess:  # it has just ended
        return False


def _is_daemon(process: psutil.Process | None) -> bool:
    return process is not None and _DAEMON in process.cmdline()
