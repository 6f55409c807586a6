"""The flights that a live run repeats: those of one day, with what changes among them.

Chosen so that each round shows all changes; nothing is made up.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from demo.data_package import data_package
from demo.dimension import PLANES

DAY = dt.date(2013, 1, 2)  # the first one on which all missing airports are flown to


def day_of_flights(flights: pa.Table) -> pa.Table:
    """The flights of the day, with the columns that the stream needs."""
    is_that_day = pc.equal(flights["event_time"].cast(pa.date32()), pa.scalar(DAY))
    columns = ["flight_id", "event_time", "tailnum", "origin", "dest"]
    return flights.filter(is_that_day).select(columns).combine_chunks()


def busiest_planes(day: pa.Table, count: int) -> list[str]:
    """The planes that fly most often, of those that the data package knows."""
    options = csv.ConvertOptions(include_columns=list(PLANES.key))
    known = csv.read_csv(data_package() / f"{PLANES.name}.csv", convert_options=options)
    flown = day.filter(pc.is_in(day["tailnum"], known["tailnum"].combine_chunks()))
    counted = flown.group_by("tailnum").aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("tailnum", "ascending")]
    return counted.sort_by(order)["tailnum"].slice(0, count).to_pylist()
