"""Segments of a row store: rows that lie together, by queue of S3-FIFO, and when they merge."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_core.cache.cache_view import Addresses
from lookup_core.keys.key_index import Slots

# Memory of an entry besides its row, about: else segments of narrow rows would be half the cache.
_BYTES_BESIDE_ROW = 40
_SEGMENTS_PER_QUEUE = 6  # about; each further one costs every `gather` some 20 microseconds
_ROOMY_SEGMENT_BYTES = 32 * 1024 * 1024  # while nothing is evicted; bounds the time of a merge
_MAX_SEGMENT_BYTES = 256 * 1024 * 1024  # far below the limit of Arrow's 32-bit text offsets
# Rows that become one segment when no more come, which takes some 60 ms, and the least share of new
# ones. From several segments, a large read takes twice as long.
_WHOLE_BYTES, _WHOLE_SHARE = 64 * 1024 * 1024, 1 / 8


class RowQueue(Enum):
    """The queues of the cache."""

    SMALL = "small"  # new rows, on probation
    MAIN = "main"  # rows that were looked up again
    NEGATIVE = "negative"  # negative entries


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Which `count` neighbours of a queue become one segment.

    The eldest has at most `ratio` times the rows of the others: sizes fall from old to young, so
    that a row is copied a logarithmic number of times.
    """

    count: int
    ratio: float


MERGE_RUNS = MergeRule(4, 1 / 2)  # with 1/3, segments of slowly falling sizes would add up
MERGE_ROOMY, MERGE_CROWDED = MergeRule(2, 8), MergeRule(2, 2)
MERGE_QUIET = MergeRule(2, 64)  # when no more rows come


@dataclass(slots=True, kw_only=True, eq=False)  # equal by identity
class RowSegment:
    """Rows of one queue with their slots; row i has the address `start + i`."""

    start: int
    rows: pa.RecordBatch
    slots: Slots  # [rows] the slot of each row; a row is dead when its slot has another address
    queue: RowQueue
    bytes: int
    columns: Sequence[pa.Array]  # for single rows: Arrow copies the list on access
    is_settled: bool  # in memory that readers see
    dead: int = 0

    @property
    def total_bytes(self) -> int:
        """Memory of its rows and of everything besides them."""
        return self.bytes + _BYTES_BESIDE_ROW * len(self.slots)

    @property
    def addresses(self) -> Addresses:
        """The addresses of all its rows, dead ones included."""
        return np.arange(self.start, self.start + len(self.slots), dtype=np.uint32)


def merge_plan(
    segments: Sequence[RowSegment], rule: MergeRule, *, max_bytes: int
) -> Sequence[RowSegment]:
    """The youngest neighbours that a rule merges, up to this size; empty if there are none."""
    for end in range(len(segments), rule.count - 1, -1):
        elder, *others = run = segments[end - rule.count : end]
        is_even = len(elder.slots) <= rule.ratio * sum(len(each.slots) for each in others)
        if is_even and sum(each.total_bytes for each in run) <= max_bytes:
            return run
    return ()


def is_worth_merging(segments: Sequence[RowSegment]) -> bool:
    """Whether all segments of one queue become one, when no more rows come."""
    sizes = [each.bytes for each in segments]
    has_new = sum(sizes) >= (1 + _WHOLE_SHARE) * max(sizes, default=0)
    return len(sizes) > 1 and has_new and sum(sizes) <= _WHOLE_BYTES


@dataclass(slots=True)
class SegmentQueue:
    """The segments of one queue; its owner sets `unit_bytes`, its store the rest."""

    unit_bytes: int  # to be evicted at a time
    segments: list[RowSegment] = field(default_factory=list)  # the oldest first
    bytes: int = 0  # rows and their slots
    rows: int = 0

    def segment_bytes(self, *, is_roomy: bool) -> int:
        """The size up to which segments are merged, the overhead of their entries included."""
        total_bytes = self.bytes + _BYTES_BESIDE_ROW * self.rows
        large = max(self.unit_bytes, total_bytes // _SEGMENTS_PER_QUEUE)
        if is_roomy:
            large = max(large, _ROOMY_SEGMENT_BYTES)
        return min(large, _MAX_SEGMENT_BYTES)


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
