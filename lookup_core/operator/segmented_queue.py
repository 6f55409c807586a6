"""Element queues that reorder records between watermarks: unordered and key-ordered.

After Flink's `UnorderedStreamElementQueue`.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lookup_core.operator.element_queue import (
    ElementQueue,
    Emission,
    Mark,
    RowMask,
    RowPositions,
    Slice,
    SlotId,
)

SlotRows = tuple[SlotId, RowPositions]  # rows of one slot

_MIN_FORGOTTEN_ROWS = 1024  # fewer cost less than a clean-up


class SegmentOrder:
    """The order in which the rows of one segment leave; here, the order of their completion."""

    def add_rows(self, slot: SlotId, element: Slice) -> None:
        """Add the rows of a slice behind all others."""

    def complete(self, slot: SlotId, rows: RowPositions) -> list[SlotRows]:
        """Complete open rows; returns all rows that may leave as a result, in order."""
        return [(slot, rows)]

    def check_invariants(self) -> None:
        """For tests."""


@dataclass(slots=True)
class _Segment:
    order: SegmentOrder
    is_mark: bool = False  # it consists of a watermark
    open: dict[SlotId, None] = field(default_factory=dict)  # an ordered set
    completed: deque[SlotRows] = field(default_factory=deque)  # may leave, in this order

    @property
    def is_empty(self) -> bool:
        # A held row waits for an open row of the same segment.
        return not self.open and not self.completed


class UnorderedQueue(ElementQueue):
    """An element queue whose rows leave in the order of completion between two watermarks."""

    _new_order: type[SegmentOrder] = SegmentOrder

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._segments: deque[_Segment] = deque()
        self._segment_of: dict[SlotId, _Segment] = {}  # {slot with open rows: its segment}

    def pop_completed(self) -> Emission | None:
        """The rows of the first segment that completed first, or its watermark."""
        if not self._segments or not self._segments[0].completed:
            return None
        segment = self._segments[0]
        slot, rows = segment.completed.popleft()
        is_last = self._release(slot, 1 if segment.is_mark else len(rows))
        if segment.is_empty and len(self._segments) > 1:
            self._segments.popleft()
        return Emission(slot, rows, is_last)

    def check_invariants(self) -> None:
        """For tests: only the last segment may be empty, and open slots have their segment."""
        super().check_invariants()
        assert not any(segment.is_empty for segment in list(self._segments)[:-1])
        open_slots = {slot: segment for segment in self._segments for slot in segment.open}
        assert self._segment_of == open_slots
        assert all(self._is_open(slot) for slot in self._segment_of)
        for segment in self._segments:
            segment.order.check_invariants()

    def _append(self, slot: SlotId, element: Slice | Mark) -> None:
        if isinstance(element, Mark):
            segment = self._new_segment(_Segment(SegmentOrder(), is_mark=True))
            segment.completed.append((slot, np.zeros(0, np.intp)))
            return
        segment = self._segments[-1] if self._segments else self._new_segment()
        if segment.is_mark:
            segment = self._new_segment()
        segment.order.add_rows(slot, element)
        segment.open[slot] = None
        self._segment_of[slot] = segment

    def _complete(self, slot: SlotId, rows: RowMask) -> RowPositions:
        completed = super()._complete(slot, rows)
        if not len(completed):
            return completed
        segment = self._segment_of[slot]
        segment.completed.extend(segment.order.complete(slot, completed))
        if not self._is_open(slot):
            del segment.open[slot]
            del self._segment_of[slot]
        return completed

    def _new_segment(self, mark: _Segment | None = None) -> _Segment:
        # An empty segment would hide the new one behind it.
        if self._segments and self._segments[-1].is_empty:
            self._segments.pop()
        segment = mark or _Segment(self._new_order())
        self._segments.append(segment)
        return segment


class OrderOfKeys(SegmentOrder):
    """A `SegmentOrder`: a completed row waits for earlier open rows of its key.

    Rows are stored by arrival; `_by_key` sorts them by hash, then by arrival. When a row completes,
    all rows of its key are checked again.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(0, np.int64)  # [rows] ascending
        self._rows = np.zeros(0, np.intp)  # [rows] position in its slot, ascending for each slot
        self._hashes = np.zeros(0, np.uint64)  # [rows]
        self._is_open = np.zeros(0, np.bool_)  # [rows]
        self._has_left = np.zeros(0, np.bool_)  # [rows]
        self._by_key = np.zeros(0, np.intp)  # [rows]
        self._sorted_hashes = np.zeros(0, np.uint64)  # [rows] of `_by_key`

    def add_rows(self, slot: SlotId, element: Slice) -> None:
        """See `SegmentOrder`."""
        hashes = element.key_hashes
        self._forget_left()
        known, size = len(self._slots), element.size
        self._slots = np.concatenate([self._slots, np.full(size, slot)])
        self._rows = np.concatenate([self._rows, np.arange(size)])
        self._hashes = np.concatenate([self._hashes, hashes])
        self._is_open = np.concatenate([self._is_open, np.ones(size, np.bool_)])
        self._has_left = np.concatenate([self._has_left, np.zeros(size, np.bool_)])
        newest = np.argsort(hashes, kind="stable")
        # Behind rows of the same hash, which arrived earlier.
        places = np.searchsorted(self._sorted_hashes, hashes[newest], side="right")
        self._by_key = np.insert(self._by_key, places, known + newest)
        self._sorted_hashes = np.insert(self._sorted_hashes, places, hashes[newest])

    def complete(self, slot: SlotId, rows: RowPositions) -> list[SlotRows]:
        """See `SegmentOrder`."""
        start, stop = np.searchsorted(self._slots, [slot, slot + 1])
        completed = start + np.searchsorted(self._rows[start:stop], rows)
        self._is_open[completed] = False
        leaving = self._free(np.unique(self._hashes[completed]))
        self._has_left[leaving] = True
        slots = self._slots[leaving]
        parts = np.split(leaving, np.flatnonzero(np.diff(slots)) + 1) if len(leaving) else []
        return [(SlotId(int(self._slots[part[0]])), self._rows[part]) for part in parts]

    def check_invariants(self) -> None:
        """For tests: the index is sorted and complete, and every held row has a reason."""
        assert sorted(self._by_key.tolist()) == list(range(len(self._slots)))
        assert (self._hashes[self._by_key] == self._sorted_hashes).all()
        order = list(zip(self._sorted_hashes.tolist(), self._by_key.tolist(), strict=True))
        assert order == sorted(order)
        assert not (self._is_open & self._has_left).any()
        assert not len(self._free(np.unique(self._hashes)))

    def _free(self, hashes: npt.NDArray[np.uint64]) -> RowPositions:
        """The completed rows of these keys that have not left, without an earlier open row."""
        starts = np.searchsorted(self._sorted_hashes, hashes, side="left")
        lengths = np.searchsorted(self._sorted_hashes, hashes, side="right") - starts
        firsts = np.cumsum(lengths) - lengths  # the first of each key in `members`
        members = self._by_key[np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)]
        is_open = self._is_open[members]
        opened = np.cumsum(is_open)  # over all keys, each member included
        before = np.repeat(opened[firsts] - is_open[firsts], lengths)
        is_free = (opened == before) & ~self._has_left[members]
        return np.sort(members[is_free])

    def _forget_left(self) -> None:
        # Without this, a segment without watermarks would grow for ever.
        count = int(np.count_nonzero(self._has_left))
        if count < max(_MIN_FORGOTTEN_ROWS, len(self._slots) // 2):
            return
        kept = ~self._has_left
        place = np.cumsum(kept) - 1
        is_kept = kept[self._by_key]
        self._by_key = place[self._by_key[is_kept]]
        self._sorted_hashes = self._sorted_hashes[is_kept]
        self._slots, self._rows = self._slots[kept], self._rows[kept]
        self._hashes, self._is_open = self._hashes[kept], self._is_open[kept]
        self._has_left = self._has_left[kept]


class KeyOrderedQueue(UnorderedQueue):
    """An element queue in which rows of different keys overtake each other."""

    _new_order = OrderOfKeys

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`; ValueError also for a slice without one key hash per row."""
        if isinstance(element, Slice) and len(element.key_hashes) != element.size:
            raise ValueError("a slice in key order needs key_hashes, one for each row")
        return super().try_put(element)
