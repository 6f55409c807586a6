"""Segments: runs of rows that are stored, merged and evicted together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.keys.key_index import Slots

# About what an entry takes beside its row: else a segment of narrow rows would be half the cache.
BYTES_BESIDE_ROW = 40

_SEGMENTS_OF_A_QUEUE = 6  # about; each more of them costs every gathering a dozen microseconds
_MOST_SEGMENT_BYTES = 256 * 1024 * 1024  # far from where the 32-bit offsets of Arrow's text end


@dataclass(slots=True)
class SegmentQueue:
    """Changed by its store only."""

    max_segment_bytes: int
    ids: dict[int, None]  # of segments, oldest first
    bytes: int = 0
    rows: int = 0

    @property
    def segment_bytes(self) -> int:
        """How large a segment may become by merging, with what its entries take elsewhere."""
        whole_bytes = self.bytes + BYTES_BESIDE_ROW * self.rows
        large = max(self.max_segment_bytes, whole_bytes // _SEGMENTS_OF_A_QUEUE)
        return min(large, _MOST_SEGMENT_BYTES)


class RowQueue(Enum):
    """Where an entry stands."""

    SMALL = "small"  # rows that came in lately, until they have proved themselves
    MAIN = "main"  # rows that were asked for again
    ABSENT = "absent"  # keys that have no row


Addresses = npt.NDArray[np.uint32]


@dataclass(slots=True)
class Segment:
    """Rows of one queue with their slots; row i has the address `start + i`."""

    start: int
    rows: pa.RecordBatch
    slots: Slots  # [rows] whose row it is; a row is dead when its slot stands elsewhere
    queue: RowQueue
    bytes: int
    columns: Sequence[pa.Array]  # of the rows; Arrow makes new ones whenever it is asked
    dead: int = 0

    @classmethod
    def of(cls, rows: pa.RecordBatch, slots: Slots, queue: RowQueue, *, start: int) -> "Segment":
        """Rows that all live."""
        return cls(start, rows, slots, queue, stored_bytes(rows), rows.columns)

    @property
    def addresses(self) -> Addresses:
        """Of all its rows, dead or alive."""
        return np.arange(self.start, self.start + len(self.slots), dtype=np.uint32)


def stored_bytes(rows: pa.RecordBatch) -> int:
    """What rows hold in memory once they are stored, with their slots.

    Counts a validity bitmap for each column, and shared buffers as if they were not: merging and
    compacting make them so, and must not take more than was foretold.
    """
    slot_bytes = rows.num_rows * np.dtype(np.int32).itemsize
    return slot_bytes + sum(_column_bytes(column) for column in rows.columns)


def _column_bytes(column: pa.Array) -> int:
    bitmap_bytes = -(-len(column) // 8)  # of the only buffers that may be absent
    buffers, values_bytes = column.buffers(), 0
    if types.is_list(column.type):  # its values have a bitmap of their own, of their number
        buffers, values_bytes = buffers[:2], _column_bytes(column.values)
    return values_bytes + sum(bitmap_bytes if each is None else each.size for each in buffers)
