"""Versions as of a time: moments on one scale, and the version that each record gets."""

import datetime as dt
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lookup_core.errors import ProtocolViolation
from lookup_core.operator.as_of import (
    EARLIEST_US,
    LATEST_US,
    NEVER_US,
    NO_VERSION,
    AsOf,
    VersionPick,
    is_moment,
    moments_us,
)

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
NOON_US = 1_709_208_000_000_000
INT64 = np.iinfo(np.int64)
TIME = pa.timestamp("us")
NAME = pa.schema({"name": pa.utf8()})

Version = tuple[int | None, int | None]  # valid from, valid to
Rows = list[list[Version]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_units_and_zones_are_one_scale(unit: str, zone: str | None) -> None:
    """The same moment is the same number in any unit and zone; without a zone it is UTC."""
    value = NOON.replace(tzinfo=None) if zone is None else NOON
    column = pa.array([None, value, value], pa.timestamp(unit, zone))

    assert moments_us(column, null_us=5).tolist() == [5, NOON_US, NOON_US]
    assert moments_us(column.slice(1), null_us=5).tolist() == [NOON_US, NOON_US]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, -1], pa.date32()), [86_400_000_000, 7, -86_400_000_000]),
        (pa.array([1_999, -1, None], pa.timestamp("ns")), [1, -1, 7]),
        (pa.array([INT64.min, INT64.max], TIME), [EARLIEST_US, LATEST_US]),
    ],
    ids=["days", "nanoseconds", "infinities"],
)
def test_moments_are_microseconds(column: pa.Array, expected: list[int]) -> None:
    """Days begin at midnight UTC, fractions round down, the extremes are "always valid"."""
    assert moments_us(column, null_us=7).tolist() == expected
    assert is_moment(column.type)
    assert not any(map(is_moment, [pa.int64(), pa.utf8(), pa.time64("us")]))


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.date32()])
def test_extremes_stay_between_the_marks(kind: pa.DataType) -> None:
    """No time of a table equals the marks for never, always before and always after."""
    width = np.int32 if kind == pa.date32() else np.int64
    ends = pa.array(np.array([np.iinfo(width).min, np.iinfo(width).max], width))

    low, high = moments_us(ends.view(kind), null_us=0).tolist()

    assert NEVER_US < EARLIEST_US <= low == -high
    assert LATEST_US - 86_400_000_000 <= high < LATEST_US


@pytest.mark.parametrize(
    ("times_us", "event_time_ms"),
    [([], None), ([NEVER_US], None), ([NEVER_US, -1], -1), ([1_999, 3], 1), ([0], 0)],
)
def test_event_time_is_the_largest(times_us: list[int], event_time_ms: int | None) -> None:
    """The event time of a lookup is the largest time of its records, rounded down to 1 ms."""
    as_of = AsOf(np.array(times_us, np.int64), VersionPick(pa.schema([]), 0, None))

    assert as_of.event_time_ms == event_time_ms


@dataclass(frozen=True, slots=True)
class Record:
    """Looks up a row as of a time."""

    row: int
    at: int | None


def in_order(row: list[Version]) -> list[Version]:
    """The versions by when they begin."""
    return sorted(row, key=lambda each: () if each[0] is None else (each[0],))


def lists(rows: Rows) -> pa.RecordBatch:
    """The rows as the service sends them, each version named by its row and place."""
    ordered = [*map(in_order, rows)]
    names = [[f"{n}.{place}" for place in range(len(row))] for n, row in enumerate(ordered)]
    begins, ends = ([[each[side] for each in row] for row in ordered] for side in (0, 1))
    columns = [pa.array(names, pa.list_(pa.utf8()))]
    columns += [pa.array(each, pa.list_(TIME)) for each in (begins, ends)]
    return pa.record_batch(columns, ["name", "valid_from", "valid_to"])


def valid(row: list[Version], at: int | None, *, has_ends: bool) -> int | None:
    """The place of the valid version that began last, found one by one."""
    found = None
    for place, (begin, end) in enumerate(in_order(row)):
        has_begun = at is not None and (begin is None or begin <= at)
        has_ended = has_ends and end is not None and at is not None and end <= at
        if has_begun and not has_ended:
            found = place
    return found


def picked(batch: pa.RecordBatch, records: list[Record], *, has_ends: bool) -> list[str | None]:
    """The names that the records get."""
    pick = VersionPick(NAME, 1, 2 if has_ends else None)
    times = moments_us(pa.array([each.at for each in records], TIME), null_us=NEVER_US)
    rows = np.array([each.row for each in records], np.int64)
    found = pick.picked(batch, rows, times)
    assert found.rows.schema == NAME
    names = found.rows.column(0)
    return [None if place == NO_VERSION else names[place].as_py() for place in found.places]


moments = st.none() | st.integers(-3, 12)
version_rows = st.lists(st.lists(st.tuples(moments, moments), max_size=7), min_size=1, max_size=5)


@settings(max_examples=40)
@given(version_rows, st.lists(st.tuples(st.integers(0, 99), moments), max_size=30), st.booleans())
@example([[(0, 9), (1, 2), (3, 4)], [(2, 3)]], [(0, 5), (0, 1), (1, 9)], True)  # noqa: FBT003
@example([[]], [(0, 1)], True)  # noqa: FBT003
@example([[(10, 20), (20, None)]], [(0, at) for at in (9, 10, 19, 20, 99)], True)  # noqa: FBT003
def test_version_is_that_of_plain_search(
    rows: Rows,
    wanted: list[tuple[int, int | None]],
    has_ends: bool,  # noqa: FBT001
) -> None:
    """A version is valid from its first moment to before its last; the latest one counts."""
    records = [Record(row % len(rows), at) for row, at in wanted]

    padded = lists([[(0, None)], *rows])  # an answer may be a slice of a larger batch
    found = picked(padded.slice(1), records, has_ends=has_ends)

    places = [valid(rows[each.row], each.at, has_ends=has_ends) for each in records]
    assert found == [
        None if place is None else f"{each.row + 1}.{place}"
        for each, place in zip(records, places, strict=True)
    ]


def test_unequal_lists_are_refused() -> None:
    """Lists of one row that are null or of different lengths violate the protocol."""
    batch = lists([[(0, 1)]])
    longer = batch.set_column(0, "name", pa.array([["a", "b"]]))
    null = batch.set_column(1, "valid_from", pa.array([None], pa.list_(TIME)))

    for each, why in ((longer, "different lengths"), (null, "is null")):
        with pytest.raises(ProtocolViolation, match=why):
            picked(each, [Record(0, 0)], has_ends=True)
