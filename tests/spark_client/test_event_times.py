"""Event times of a batch in milliseconds."""

import datetime as dt

import pyarrow as pa
import pytest

from lookup_core.operator.event_time_watermarks import MIN_EVENT_TIME_MS
from spark_client.lookup_operator import event_times, is_event_time, latest_event_time

MOMENT = dt.datetime(2013, 1, 1, 5, 0, 0, 999, tzinfo=dt.UTC)
MOMENT_MS = 1_357_016_400_000


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_timestamps_become_milliseconds(unit: str, zone: str | None) -> None:
    """Whatever the unit and the zone, it is the same moment; parts of a millisecond are cut."""
    column = pa.array([MOMENT.replace(microsecond=0), None], pa.timestamp("us", "UTC")).cast(
        pa.timestamp(unit, zone)
    )

    assert event_times(column).tolist() == [MOMENT_MS, MIN_EVENT_TIME_MS]


def test_parts_of_milliseconds_round_down() -> None:
    """Also before the epoch, so that a watermark never runs ahead of its record."""
    column = pa.array([-1, 999, 1_000], pa.timestamp("us"))

    assert event_times(column).tolist() == [-1, 0, 1]


def test_whole_numbers_are_milliseconds() -> None:
    """A column of integers is taken as it is, in slices as well."""
    column = pa.array([1, 5, None], pa.int64()).slice(1)

    assert event_times(column).tolist() == [5, MIN_EVENT_TIME_MS]
    assert event_times(pa.array([3], pa.int32())).tolist() == [3]


def test_latest_of_no_times_is_none() -> None:
    """NULLs alone, or no records at all, have no time to wait for."""
    times_ms = event_times(pa.array([None, 5, -1], pa.int64()))

    assert latest_event_time(times_ms) == 5
    assert latest_event_time(times_ms[:1]) is None
    assert latest_event_time(times_ms[:0]) is None


def test_other_types_hold_no_event_time() -> None:
    """Only timestamps and integers count."""
    kinds = [pa.timestamp("us"), pa.int64(), pa.utf8(), pa.float64(), pa.date32()]

    assert [is_event_time(kind) for kind in kinds] == [True, True, False, False, False]
