"""Times of any type as microseconds."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.operator.as_of import EARLIEST_US, LATEST_US, NEVER_US, is_moment, moments_us

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
NOON_US = 1_709_208_000_000_000


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_units_and_zones_are_one_scale(unit: str, zone: str | None) -> None:
    """The same moment is the same number; without a zone it is one of UTC."""
    value = NOON.replace(tzinfo=None) if zone is None else NOON
    column = pa.array([None, value, value], pa.timestamp(unit, zone))

    assert moments_us(column, null_us=5).tolist() == [5, NOON_US, NOON_US]
    assert moments_us(column.slice(1), null_us=5).tolist() == [NOON_US, NOON_US]


def test_days_begin_at_midnight() -> None:
    """A date is its first moment in UTC."""
    days = pa.array([dt.date(1970, 1, 2), None, dt.date(1969, 12, 31)], pa.date32())

    assert moments_us(days, null_us=7).tolist() == [86_400_000_000, 7, -86_400_000_000]


def test_fractions_are_rounded_down() -> None:
    """Of nanoseconds, also before the epoch."""
    column = pa.array([1_999, -1], pa.timestamp("ns"))

    assert moments_us(column, null_us=0).tolist() == [1, -1]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.date32()])
def test_extremes_stay_between_the_marks(kind: pa.DataType) -> None:
    """No time of a table is taken for "never", "from ever" or "for ever"."""
    width = np.int32 if kind == pa.date32() else np.int64
    ends = pa.array(np.array([np.iinfo(width).min, np.iinfo(width).max], width))

    low, high = moments_us(ends.view(kind), null_us=0).tolist()

    assert NEVER_US < EARLIEST_US <= low < high < LATEST_US


def test_infinite_microseconds_are_the_marks() -> None:
    """The ends of their range, which files use for infinity, are "from ever" and "for ever"."""
    ends = pa.array(np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]), pa.timestamp("us"))

    assert moments_us(ends, null_us=0).tolist() == [EARLIEST_US, LATEST_US]


def test_times_are_dates_and_timestamps() -> None:
    """Numbers, texts and times of day are none."""
    assert all(map(is_moment, [pa.date32(), pa.timestamp("ms", "UTC")]))
    assert not any(map(is_moment, [pa.int64(), pa.utf8(), pa.time64("us")]))
