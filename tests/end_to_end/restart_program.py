"""A driver that runs `restart_queries` from their checkpoints until it is killed."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.end_to_end.restart_queries import RestartQueries


def main(url: str, events: str, folder: str, held_from: str) -> None:
    """Run the queries; from batch `held_from` on, the rows block forever."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    RestartQueries(url, Path(events), Path(folder), int(held_from)).run(session)


if __name__ == "__main__":
    main(*sys.argv[1:])
