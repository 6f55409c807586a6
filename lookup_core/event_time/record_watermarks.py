"""Watermark generator for the event times of one partition, in milliseconds.

After Flink's `BoundedOutOfOrdernessWatermarks`. `watermark_valve` merges watermarks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

EventTimes = npt.NDArray[np.int64]  # milliseconds

MIN_EVENT_TIME_MS = -(2**63)  # no event time (NULL): does not hold the watermark back
MAX_WATERMARK_MS = 2**63 - 1  # the end of input
_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Cut:
    """A watermark after the first `rows` rows of a batch."""

    rows: int
    watermark_ms: int


class EventTimeWatermarks:
    """Watermarks of the largest event time so far, minus the delay, minus 1 ms."""

    def __init__(self, delay_ms: int, interval_ms: int | None = None) -> None:
        """`interval_ms`: also cut inside a batch when the watermark advances by this much."""
        if delay_ms < 0 or (interval_ms is not None and interval_ms < 1):
            raise ValueError("the delay must be at least 0 ms, the interval at least 1 ms")
        self._lag_ms = delay_ms + 1
        self._interval_ms = interval_ms
        self._largest_ms = MIN_EVENT_TIME_MS
        self._cut_at_ms = MIN_EVENT_TIME_MS  # the largest event time at the last cut
        self._watermark_ms = MIN_EVENT_TIME_MS  # the last one

    def on_batch(self, event_times_ms: npt.NDArray[np.int64]) -> list[Cut]:
        """The cuts of one batch, each with a later watermark than the cut before it.

        The last is at the end of the batch, unless the watermark does not advance. NULL is
        `MIN_EVENT_TIME_MS`.
        """
        if not len(event_times_ms):
            return []
        running = np.maximum.accumulate(event_times_ms)
        np.maximum(running, self._largest_ms, out=running)
        cuts = [] if self._interval_ms is None else self._inner_cuts(running, self._interval_ms)
        self._largest_ms = int(running[-1])
        return [*cuts, *self._cut(len(running), self._largest_ms)]

    def check_invariants(self) -> None:
        """For tests: no cut is ahead of the event times."""
        assert self._cut_at_ms <= self._largest_ms

    def _inner_cuts(self, running: npt.NDArray[np.int64], interval_ms: int) -> list[Cut]:
        if self._cut_at_ms == MIN_EVENT_TIME_MS:  # count from the first event time
            seen = running[np.searchsorted(running, MIN_EVENT_TIME_MS, side="right") :]
            self._cut_at_ms = int(seen[0]) if len(seen) else MIN_EVENT_TIME_MS
        cuts: list[Cut] = []
        while (due_ms := self._cut_at_ms + interval_ms) <= int(running[-1]):
            row = int(np.searchsorted(running, due_ms, side="left"))
            cuts += self._cut(row + 1, int(running[row]))
        return cuts

    def _cut(self, rows: int, largest_ms: int) -> list[Cut]:
        """A cut if the watermark advances; another one would only separate records."""
        self._cut_at_ms = largest_ms
        watermark_ms = max(largest_ms - self._lag_ms, MIN_EVENT_TIME_MS)
        if watermark_ms <= self._watermark_ms:
            return []
        self._watermark_ms = watermark_ms
        return [Cut(rows, watermark_ms)]


def event_times(column: pa.Array) -> EventTimes:
    """Milliseconds of timestamps (rounded down) and whole numbers; NULL is the least time."""
    times_ms = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    if types.is_timestamp(column.type):
        per_second = _TICKS_PER_SECOND[column.type.unit]
        times_ms = times_ms * 1000 if per_second == 1 else times_ms // (per_second // 1000)
    if column.null_count:
        times_ms[column.is_null().to_numpy(zero_copy_only=False)] = MIN_EVENT_TIME_MS
    return times_ms


def latest_event_time(times_ms: EventTimes) -> int | None:
    """The largest of some event times, as `event_times` gives them; None if there is none."""
    largest_ms = int(times_ms.max(initial=MIN_EVENT_TIME_MS))
    return None if largest_ms == MIN_EVENT_TIME_MS else largest_ms


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds event times."""
    return bool(types.is_timestamp(kind) or types.is_integer(kind))
