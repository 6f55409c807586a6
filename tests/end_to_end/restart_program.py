"""A driver that runs the queries of `restart_queries` to the end, from their checkpoints.

What it is killed for is the test's business.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.end_to_end.restart_queries import RestartQueries


def main(url: str, events: str, folder: str) -> None:
    """Returns when both queries have read all there is."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        .getOrCreate()
    )
    RestartQueries(url, Path(events), Path(folder)).run(session)


if __name__ == "__main__":
    main(*sys.argv[1:])
