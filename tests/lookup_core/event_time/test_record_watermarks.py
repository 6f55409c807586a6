"""Client watermarks: bounded out-of-orderness, and batches split at watermarks."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.event_time.record_watermarks import (
    MIN_EVENT_TIME_MS,
    Cut,
    EventTimeWatermarks,
    event_times,
    is_event_time,
    latest_event_time,
)
from lookup_core.operator.batch_intake import BatchIntake, Rows
from tests.lookup_core.hypothesis_runs import few_examples

NULL = MIN_EVENT_TIME_MS


@pytest.mark.parametrize(
    ("delay_ms", "interval_ms", "batches"),
    [
        (10, None, [([100, 300, 200], [(3, 289)]), ([50], []), ([400], [(1, 389)])]),
        (0, 5, [([NULL, NULL], []), ([], []), ([NULL, 7, NULL], [(3, 6)])]),
        (0, 10, [([0, 9, 10, 11, 35, 36], [(3, 9), (5, 34), (6, 35)])]),
        (0, 10, [([0, 10], [(2, 9)]), ([15, 20, 26, 26], [(2, 19), (4, 25)])]),
        (0, 1, [([1, 2, 2, 3], [(2, 1), (4, 2)])]),
        (0, 10, [([5], [(1, 4)]), ([5, 3], []), ([15, 15], [(1, 14)]), ([NULL], [])]),
        (1_000, 1, [([NULL + 1, NULL + 900], []), ([NULL + 1_002], [(1, NULL + 1)])]),
    ],
    ids=["delay", "nulls", "interval", "next batch", "every step", "no advance", "64 bits"],
)
def test_watermarks_follow_event_time(
    delay_ms: int, interval_ms: int | None, batches: list[tuple[list[int], list[tuple[int, int]]]]
) -> None:
    """A batch that advances the largest event time ends with it, less delay and 1 ms.

    Inside a batch a watermark follows the record that advances it by the interval. NULLs and late
    records make no watermark.
    """
    watermarks = EventTimeWatermarks(delay_ms, interval_ms)

    found = [watermarks.on_batch(np.array(times, np.int64)) for times, _ in batches]

    assert found == [[Cut(*cut) for cut in cuts] for _, cuts in batches]
    watermarks.check_invariants()


@pytest.mark.parametrize("wrong", [{"delay_ms": -1}, {"delay_ms": 0, "interval_ms": 0}])
def test_watermark_settings_are_checked(wrong: dict[str, Any]) -> None:
    """A negative delay and an interval of zero are errors."""
    with pytest.raises(ValueError, match="delay must be at least 0 ms, the interval at least 1 ms"):
        EventTimeWatermarks(**wrong)


def naive_cuts(batches: list[list[int]], delay_ms: int, interval_ms: int | None) -> list[list[Cut]]:
    """The cuts that a loop over the records finds."""
    largest, cut_at, last, everything = NULL, NULL, NULL, []
    for batch in batches:
        cuts = []
        for count, value in enumerate(batch, 1):
            largest = max(largest, value)
            if interval_ms is not None and cut_at == NULL:
                cut_at = largest
            advances = interval_ms is not None and largest >= cut_at + interval_ms
            if largest == NULL or not (advances or count == len(batch)):
                continue
            cut_at, watermark = largest, max(largest - delay_ms - 1, NULL)
            if watermark > last:
                cuts.append(Cut(count, watermark))
                last = watermark
        everything.append(cuts)
    return everything


@few_examples
@given(
    st.lists(st.lists(st.integers(-1000, 1000) | st.just(NULL), max_size=30), max_size=5),
    st.integers(0, 50),
    st.none() | st.integers(1, 500),
)
def test_watermarks_are_those_of_a_loop(
    batches: list[list[int]], delay_ms: int, interval_ms: int | None
) -> None:
    """The watermarks of any batches are those that a loop over the records finds."""
    watermarks = EventTimeWatermarks(delay_ms, interval_ms)

    found = [watermarks.on_batch(np.array(batch, np.int64)) for batch in batches]

    assert found == naive_cuts(batches, delay_ms, interval_ms)


@few_examples
@given(
    st.sets(st.integers(1, 20), max_size=6).map(sorted),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=40, max_size=40),
)
def test_batch_goes_in_once_in_order(ends: list[int], room: list[tuple[int, int]]) -> None:
    """Rows and watermarks enter once, in order, within the free places and allowed rows."""
    all_cuts = [Cut(end, end * 10) for end in ends]
    expected: list[int | Cut] = []
    for row in range(20):
        expected += [row, *(cut for cut in all_cuts if cut.rows == row + 1)]
    intake = BatchIntake(20, all_cuts)
    taken: list[int | Cut] = []

    for places, rows in room:
        run = intake.next_run(places=places, rows=rows)
        intake.check_invariants()
        some: list[int | Cut] = []
        for part in run.elements:
            some += range(part.start, part.stop) if isinstance(part, Rows) else [part]
        taken += some
        is_row = [isinstance(each, int) for each in some]
        assert sum(is_row) == run.rows.stop - run.rows.start
        next_is_row = isinstance([*expected, None][len(taken)], int)
        is_full = len(some) == places or (sum(is_row) == rows and next_is_row)
        assert is_full or taken == expected
        assert (len(some) <= places, sum(is_row) <= rows) == (True, True)
        assert intake.places_left == len(expected) - len(taken)

    assert taken == expected


MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_timestamps_become_milliseconds(unit: str, zone: str | None) -> None:
    """The unit and the zone of a column do not change the moment."""
    column = pa.array([MOMENT, None], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))

    assert event_times(column).tolist() == [1_357_016_400_000, MIN_EVENT_TIME_MS]


def test_event_times_round_down() -> None:
    """Also before the epoch; integers are exact; NULLs alone, or no records, have no latest."""
    whole = pa.array([1, 5, None], pa.int64()).slice(1)
    times_ms = event_times(whole)
    kinds = [pa.timestamp("us"), pa.int64(), pa.utf8(), pa.float64(), pa.date32()]

    assert event_times(pa.array([-1, 999, 1_000], pa.timestamp("us"))).tolist() == [-1, 0, 1]
    assert times_ms.tolist() == [5, MIN_EVENT_TIME_MS]
    assert event_times(pa.array([3], pa.int32())).tolist() == [3]
    latest = [latest_event_time(each) for each in (times_ms, times_ms[1:], times_ms[:0])]
    assert latest == [5, None, None]
    assert [is_event_time(kind) for kind in kinds] == [True, True, False, False, False]
