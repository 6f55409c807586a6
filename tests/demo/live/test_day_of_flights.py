"""The flights that a live run repeats."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.flights import flights
from demo.live.changes import MISSING_AIRPORTS
from demo.live.live_run import DAY, busiest_planes, day_of_flights


@pytest.fixture(scope="module")
def day() -> pa.Table:
    """The flights of that day."""
    return day_of_flights(flights())


def test_flights_are_those_of_the_day(day: pa.Table) -> None:
    """All of them, and none of another day."""
    assert pc.unique(day["event_time"].cast(pa.date32())).to_pylist() == [DAY]
    assert day.num_rows == 930


def test_all_missing_airports_are_flown_to(day: pa.Table) -> None:
    """Each round of the stream shows whether an airport is still missing."""
    assert set(MISSING_AIRPORTS) <= set(day["dest"].to_pylist())


def test_busiest_planes_are_known_ones(day: pa.Table) -> None:
    """Those that fly most often come first; one without a row is not among them."""
    planes = busiest_planes(day, 30)

    departures = [pc.sum(pc.equal(day["tailnum"], plane)).as_py() for plane in planes]
    assert departures == sorted(departures, reverse=True)
    assert min(departures) >= 1
    assert len(set(planes)) == 30
    assert "N725MQ" not in planes
