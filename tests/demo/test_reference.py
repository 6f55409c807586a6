"""The plain join that the lookups are compared with."""

from datetime import UTC, datetime

import pyarrow as pa

from demo.audit import reference
from demo.dimension import AIRLINES, PLANES, WEATHER


def test_answers_stand_in_flight_order() -> None:
    """Each flight gets its own answer, also where keys repeat, are unknown or are NULL."""
    tails = ["N10156", None, "N10156", "no such tail", "N102UW"]
    flights = pa.table({"flight_id": range(5), "tailnum": tails})

    answers = reference(flights, PLANES)

    assert answers["plane_model"].to_pylist() == ["EMB-145XR", None, "EMB-145XR", None, "A320-214"]
    assert answers["found"].to_pylist() == [True, None, True, None, True]


def test_columns_are_prefixed_and_typed() -> None:
    """The columns are those that a lookup adds, with the types of the table."""
    flights = pa.table({"flight_id": [0], "carrier": ["UA"]})

    answers = reference(flights, AIRLINES)

    assert answers.to_pydict() == {"airline_name": ["United Air Lines Inc."], "found": [True]}


def test_composite_key_matches_in_whole() -> None:
    """The weather is that of the place and of the hour, not of one of them."""
    hour = datetime(2013, 1, 1, 6, tzinfo=UTC)
    flights = pa.table({"flight_id": range(3)}, schema=pa.schema([("flight_id", pa.int64())]))
    flights = flights.append_column("origin", pa.array(["EWR", "EWR", "BOS"]))
    hours = pa.array([hour, hour.replace(year=1999), hour], pa.timestamp("us", "UTC"))
    flights = flights.append_column("time_hour", hours)

    assert reference(flights, WEATHER)["weather_temp"].to_pylist() == [39.02, None, None]
