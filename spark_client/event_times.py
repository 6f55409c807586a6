"""Event times of a batch as milliseconds since the epoch.

Watermarks are made of them elsewhere, and lookups wait for a dimension elsewhere.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.operator.event_time_watermarks import MIN_EVENT_TIME_MS

EventTimes = npt.NDArray[np.int64]

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def event_times(column: pa.Array) -> EventTimes:
    """Timestamps (rounded down) and whole milliseconds; NULL as the least of all times."""
    milliseconds = _milliseconds(column)
    if column.null_count:
        milliseconds[column.is_null().to_numpy(zero_copy_only=False)] = MIN_EVENT_TIME_MS
    return milliseconds


def latest_event_time(times_ms: EventTimes) -> int | None:
    """The largest of some event times, as `event_times` gives them; None if there is none."""
    largest_ms = int(times_ms.max(initial=MIN_EVENT_TIME_MS))
    return None if largest_ms == MIN_EVENT_TIME_MS else largest_ms


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds event times."""
    return bool(types.is_timestamp(kind) or types.is_integer(kind))


def _milliseconds(column: pa.Array) -> EventTimes:
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    if types.is_integer(column.type):
        return ticks
    per_second = _TICKS_PER_SECOND[column.type.unit]
    return ticks * 1000 if per_second == 1 else ticks // (per_second // 1000)
