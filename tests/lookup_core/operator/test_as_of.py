"""The times of records."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.operator.as_of import NEVER_US, AsOf, VersionPick

PICK = VersionPick(pa.schema([]), 0, None)


@pytest.mark.parametrize(
    ("times_us", "event_time_ms"),
    [([], None), ([NEVER_US], None), ([NEVER_US, -1], -1), ([1_999, 3], 1), ([0], 0)],
)
def test_event_time_is_the_largest(times_us: list[int], event_time_ms: int | None) -> None:
    """In milliseconds, rounded down; records without a time have no say."""
    assert AsOf(np.array(times_us, np.int64), PICK).event_time_ms == event_time_ms
