"""Segments of a row store: rows that lie together, by queue of S3-FIFO, and their memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_core.cache.row_table import Addresses
from lookup_core.keys.key_index import Slots

# Memory of an entry besides its row, about: else segments of narrow rows would be half the cache.
_BYTES_BESIDE_ROW = 40
_SEGMENTS_PER_QUEUE = 6  # about; each further one costs every `gather` some 20 microseconds
_ROOMY_SEGMENT_BYTES = 32 * 1024 * 1024  # while nothing is evicted; bounds the time of a merge
_MAX_SEGMENT_BYTES = 256 * 1024 * 1024  # far below the limit of Arrow's 32-bit text offsets


class RowQueue(Enum):
    """The queues of the cache."""

    SMALL = "small"  # new rows, on probation
    MAIN = "main"  # rows that were looked up again
    NEGATIVE = "negative"  # negative entries


@dataclass(slots=True)
class SegmentQueue:
    """The segments of one queue; its owner sets `unit_bytes`, its store the rest."""

    unit_bytes: int  # to be evicted at a time
    ids: dict[int, None]  # of segments, oldest first
    bytes: int = 0  # of rows and their slots
    rows: int = 0

    def segment_bytes(self, *, is_roomy: bool) -> int:
        """The size up to which segments are merged, the overhead of their entries included."""
        total_bytes = self.bytes + _BYTES_BESIDE_ROW * self.rows
        large = max(self.unit_bytes, total_bytes // _SEGMENTS_PER_QUEUE)
        return min(max(large, _ROOMY_SEGMENT_BYTES * is_roomy), _MAX_SEGMENT_BYTES)


@dataclass(slots=True, kw_only=True)
class Segment:
    """Rows of one queue with their slots; row i has the address `start + i`."""

    start: int
    rows: pa.RecordBatch
    slots: Slots  # [rows] the slot of each row; a row is dead when its slot has another address
    queue: RowQueue
    bytes: int
    columns: Sequence[pa.Array]  # of the rows, for single rows: Arrow copies the list on access
    is_kept: bool  # in memory that readers see
    dead: int = 0

    @property
    def total_bytes(self) -> int:
        """Memory of its rows and of everything besides them."""
        return self.bytes + _BYTES_BESIDE_ROW * len(self.slots)

    @property
    def addresses(self) -> Addresses:
        """The addresses of all its rows, dead ones included."""
        return np.arange(self.start, self.start + len(self.slots), dtype=np.uint32)


def stored_bytes(rows: pa.RecordBatch) -> int:
    """Memory of rows once they are stored, with their slots.

    An upper bound that holds after merging and compaction too: counts a validity bitmap for each
    column, and shared buffers once per use.
    """
    slot_bytes = rows.num_rows * np.dtype(np.int32).itemsize
    return slot_bytes + sum(_column_bytes(column) for column in rows.columns)


def _column_bytes(column: pa.Array) -> int:
    bitmap_bytes = -(-len(column) // 8)  # only bitmaps may be absent
    buffers, values_bytes = column.buffers(), 0
    if types.is_list(column.type):  # the values have a bitmap of their own length
        buffers, values_bytes = buffers[:2], _column_bytes(column.values)
    elif types.is_struct(column.type):
        fields = [column.field(at) for at in range(column.type.num_fields)]
        buffers, values_bytes = buffers[:1], sum(_column_bytes(field) for field in fields)
    return values_bytes + sum(bitmap_bytes if each is None else each.size for each in buffers)
