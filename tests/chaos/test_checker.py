"""The checker of the chaos tests finds every kind of fault: a blind one would prove nothing."""

import dataclasses

import numpy as np
import pytest

from lookup_core.operator.event_time_watermarks import EventTimeWatermarks
from spark_client.lookup_settings import OutputMode
from tests.chaos.checker import Emitted, Tally, tally
from tests.chaos.records import DELAY_MS, INTERVAL_MS, Records, value_of

RECORDS = Records.seeded(7, 12_000)
RIGHT: list[Emitted] = [
    (number, value_of(key), "hit" if value_of(key) is not None else "missing")
    for number, key in enumerate(RECORDS.keys)
]


@pytest.mark.parametrize("mode", OutputMode)
def test_right_output_has_no_faults(mode: OutputMode) -> None:
    """The input's own order is right in every mode."""
    assert tally(RECORDS, RIGHT, mode) == Tally()


def test_each_kind_of_fault_is_counted() -> None:
    """What is lost, doubled, wrong or late is told apart, record by record."""
    number, value, outcome = RIGHT[3]
    wrong: Emitted = (number, -1, outcome)
    late: Emitted = (RIGHT[5][0], None, "timeout")
    bad_late: Emitted = (RIGHT[6][0], 5, "timeout")

    found = tally(
        RECORDS,
        [*RIGHT[1:3], wrong, RIGHT[4], late, bad_late, *RIGHT[7:], RIGHT[-1]],
        OutputMode.UNORDERED,
    )

    assert value != -1
    assert found == Tally(lost=1, duplicated=1, wrong=2, timed_out=2)


def test_order_is_that_of_the_mode() -> None:
    """Neighbours that change places disturb the order, and that of keys only if theirs is one."""
    first = next(n for n in range(1, 999) if RECORDS.keys[n - 1] != RECORDS.keys[n])
    same = next(n for n in range(1, 999) if RECORDS.keys[n - 1] == RECORDS.keys[n])
    swapped = {
        place: [*RIGHT[: place - 1], RIGHT[place], RIGHT[place - 1], *RIGHT[place + 1 :]]
        for place in (first, same)
    }

    found = {
        (place, mode): tally(RECORDS, swapped[place], mode).out_of_order
        for place in (first, same)
        for mode in OutputMode
    }

    assert [found[first, mode] for mode in OutputMode] == [1, 0, 0]
    assert [found[same, mode] for mode in OutputMode] == [1, 0, 1]


def test_crossing_a_watermark_is_counted() -> None:
    """A record that leaves behind one of a later segment is a violation in every mode."""
    segments = RECORDS.segments()
    border = segments.index(1)
    crossed = [*RIGHT[: border - 1], RIGHT[border], RIGHT[border - 1], *RIGHT[border + 1 :]]

    found = tally(RECORDS, crossed, OutputMode.UNORDERED)

    assert dataclasses.replace(found, watermark_violations=0) == Tally()
    assert found.watermark_violations == 1


def test_segments_are_where_watermarks_fall() -> None:
    """The naive segments are those of the cuts that the client makes."""
    watermarks = EventTimeWatermarks(DELAY_MS, INTERVAL_MS)
    cuts = [
        start * 5_000 + cut.rows
        for start, batch in enumerate(RECORDS.batches())
        for cut in watermarks.on_batch(batch.column("at_ms").to_numpy())
    ]

    borders = np.flatnonzero(np.diff(RECORDS.segments())) + 1
    assert borders.tolist() == cuts[:-1]
    assert len(cuts) > 5
