"""What a run of rows takes."""

import numpy as np
import pyarrow as pa

from lookup_core.cache.segments import RowQueue, Segment, stored_bytes


def test_bytes_are_buffers_bitmaps_and_slots() -> None:
    """Counted are the values, a validity bitmap even where there is none yet, and the slots."""
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})

    assert stored_bytes(rows) == 3 * 8 + 1 + 3 * 4


def test_rows_without_columns_take_their_slots() -> None:
    """Absences of keys that are their own hashes store nothing else."""
    rows = pa.record_batch({"n": pa.nulls(5)}).select([])

    assert stored_bytes(rows) == 5 * 4


def test_new_segment_lives_all() -> None:
    """All rows of a new segment live, and have one address after the other."""
    rows = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
    segment = Segment.of(rows, np.array([7, 3], np.int32), RowQueue.SMALL, start=5)

    assert (segment.bytes, segment.dead, segment.queue) == (stored_bytes(rows), 0, RowQueue.SMALL)
    assert segment.addresses.tolist() == [5, 6]
