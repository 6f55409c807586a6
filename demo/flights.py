"""The flights of 2013 as Parquet files, in the order of their event time.

The input of the stream: each flight gets a number and an instant, nothing is left out.
"""

import os
import time
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from demo.data_package import NULL, data_package

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
