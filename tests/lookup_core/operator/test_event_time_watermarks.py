"""Where watermarks fall in the batches of one partition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.operator.event_time_watermarks import MIN_EVENT_TIME_MS, Cut, EventTimeWatermarks

NULL = MIN_EVENT_TIME_MS
event_times = st.lists(st.one_of(st.integers(-1000, 1000), st.just(NULL)), max_size=30)


def times(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Event times in milliseconds."""
    return np.array(values, np.int64)


def test_batch_ends_with_a_watermark() -> None:
    """The largest event time so far, less the delay, less one millisecond."""
    watermarks = EventTimeWatermarks(delay_ms=10)

    assert watermarks.on_batch(times(100, 300, 200)) == [Cut(3, 289)]
    assert watermarks.on_batch(times(50)) == [Cut(1, 289)]
    assert watermarks.on_batch(times(400)) == [Cut(1, 389)]


def test_nulls_make_no_watermark() -> None:
    """A NULL event time is ignored; without any event time there is no watermark."""
    watermarks = EventTimeWatermarks(delay_ms=0, interval_ms=5)

    assert watermarks.on_batch(times(NULL, NULL)) == []
    assert watermarks.on_batch(times()) == []
    assert watermarks.on_batch(times(NULL, 7, NULL)) == [Cut(3, 6)]


def test_interval_cuts_inside_a_batch() -> None:
    """A cut stands behind the record that advances the watermark by the interval."""
    watermarks = EventTimeWatermarks(delay_ms=0, interval_ms=10)

    assert watermarks.on_batch(times(0, 9, 10, 11, 35, 36)) == [
        Cut(3, 9),
        Cut(5, 34),
        Cut(6, 35),
    ]
    assert watermarks.on_batch(times(40, 46, 46)) == [Cut(2, 45), Cut(3, 45)]


def test_early_event_times_do_not_overflow() -> None:
    """The watermark never leaves 64 bits."""
    watermarks = EventTimeWatermarks(delay_ms=1000)

    assert watermarks.on_batch(times(NULL + 1)) == [Cut(1, NULL)]


def test_wrong_settings_are_refused() -> None:
    """A negative delay and an interval of zero are mistakes."""
    with pytest.raises(ValueError, match="delay"):
        EventTimeWatermarks(delay_ms=-1)
    with pytest.raises(ValueError, match="interval"):
        EventTimeWatermarks(delay_ms=0, interval_ms=0)


def naive_cuts(batches: list[list[int]], delay_ms: int, interval_ms: int | None) -> list[list[Cut]]:
    """One record at a time."""
    largest, cut_at, everything = NULL, NULL, []
    for batch in batches:
        cuts = []
        for count, value in enumerate(batch, 1):
            largest = max(largest, value)
            if interval_ms is not None and cut_at == NULL:
                cut_at = largest
            advances = interval_ms is not None and largest >= cut_at + interval_ms
            if largest != NULL and (advances or count == len(batch)):
                cuts.append(Cut(count, max(largest - delay_ms - 1, NULL)))
                cut_at = largest
        everything.append(cuts)
    return everything


@given(
    st.lists(event_times, max_size=5),
    st.integers(0, 50),
    st.one_of(st.none(), st.integers(1, 500)),
)
def test_cuts_are_those_of_a_loop(
    batches: list[list[int]], delay_ms: int, interval_ms: int | None
) -> None:
    """Whatever the batches, the cuts are those that a look at each record gives."""
    watermarks = EventTimeWatermarks(delay_ms, interval_ms)

    found = [watermarks.on_batch(times(*batch)) for batch in batches]

    watermarks.check_invariants()
    assert found == naive_cuts(batches, delay_ms, interval_ms)
