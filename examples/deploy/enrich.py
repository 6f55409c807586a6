"""Add the columns of the dimension `customers` to events: one job for every way to run Spark.

    spark-submit … enrich.py INPUT OUTPUT [--sidecar URL] [--token-file FILE] [--ca-file FILE]

INPUT and OUTPUT are folders of Parquet files. The default URL is the socket of the node's sidecar.
"""

import argparse

from pyspark.sql import SparkSession

from sidelook import Sidecar


def main() -> None:
    """Read the events, enrich them, write them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--sidecar", default="unix:///run/sidelook/sidelook.sock")
    parser.add_argument("--token-file")
    parser.add_argument("--ca-file")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("enrich").getOrCreate()
    dims = Sidecar(given.sidecar, token_file=given.token_file, ca_file=given.ca_file)
    join = dims.lookup_join(
        "customers",
        on={"customer_id": "id"},
        # The driver's machine may have no sidecar, so the types are given.
        schema="name string, segment string, tier int",
        timeout=60.0,  # longer than the restart of a sidecar, which systemd begins after 2 s
    )
    spark.read.parquet(given.input).transform(join).write.parquet(given.output)
    spark.stop()


if __name__ == "__main__":
    main()
