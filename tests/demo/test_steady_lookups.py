"""What is asked for after the job are the keys of real flights, scattered, each once a round."""

import pyarrow as pa

from demo.dimension import PLANES, WEATHER
from demo.steady_lookups import ROUND, keys_of, places_of

FLIGHTS = pa.table(
    {
        "tailnum": ["N1", None, "N1", "N2"],
        "origin": ["JFK", "JFK", "LGA", "JFK"],
        "time_hour": pa.array([0, 0, 0, 1], pa.timestamp("us", "UTC")),
    }
)


def test_keys_are_distinct() -> None:
    """A key that several flights have is asked for once, and a null not at all."""
    keys = keys_of(FLIGHTS, PLANES, [0, 1, 2, 3])

    assert sorted(keys.to_pylist(), key=str) == [{"tailnum": "N1"}, {"tailnum": "N2"}]


def test_composite_keys_have_all_columns() -> None:
    """The columns are named as the dimension names them, with their types."""
    keys = keys_of(FLIGHTS, WEATHER, [0, 1, 3])

    assert keys.schema.names == ["origin", "time_hour"]
    assert keys.schema.field("time_hour").type == pa.timestamp("us", "UTC")
    assert keys.num_rows == 2


def test_no_flights_have_a_schema() -> None:
    """A channel is opened with the types of its keys, before there are any."""
    keys = keys_of(FLIGHTS, PLANES, [])

    assert (keys.num_rows, keys.schema.field("tailnum").type) == (0, pa.utf8())


def test_rounds_go_through_all_flights() -> None:
    """Round after round other flights come, until each was there."""
    total = 10 * ROUND

    rounds = [places_of(number, total) for number in range(10)]

    assert sorted(place for places in rounds for place in places) == list(range(total))
