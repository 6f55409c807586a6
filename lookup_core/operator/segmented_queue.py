"""Element queues that reorder records between watermarks: unordered and key-ordered."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookup_core.operator import element_queue
from lookup_core.operator.element_queue import (
    Emission,
    Expired,
    Mark,
    Positions,
    QueueStatistics,
    RowMask,
    Slice,
    SlotId,
    SlotTable,
)

SlotRows = tuple[SlotId, Positions]  # rows of one slot


class SegmentOrder(Protocol):
    """Which rows of one segment may leave, now that others are complete."""

    def add(self, slot: SlotId, element: Slice) -> None:
        """Rows arrive behind those that are here."""

    def complete(self, slot: SlotId, rows: Positions) -> list[SlotRows]:
        """These rows are complete; the rows that may leave by that, in order."""

    def held(self) -> list[SlotId]:
        """Slots with rows that are complete and may not leave yet."""

    def check_invariants(self) -> None:
        """For tests."""


@dataclass(slots=True)
class _Segment:
    order: SegmentOrder | None  # None: a watermark
    open: dict[SlotId, None] = field(default_factory=dict)  # a set that keeps its order
    completed: deque[SlotRows] = field(default_factory=deque)  # may leave, first one first

    @property
    def is_empty(self) -> bool:
        # What is held back waits for an open row of the same segment.
        return not self.open and not self.completed

    def completed_slots(self) -> tuple[SlotId, ...]:
        held = [] if self.order is None else self.order.held()
        return tuple(dict.fromkeys([*(slot for slot, _ in self.completed), *held]))


class SegmentedQueue:
    """An `ElementQueue` whose segments have an order of their own."""

    def __init__(self, capacity: int, new_order: Callable[[], SegmentOrder]) -> None:
        self._table = SlotTable(capacity)
        self._new_order = new_order
        self._segments: deque[_Segment] = deque()
        self._segment_of: dict[SlotId, _Segment] = {}  # {slot with open rows: where it stands}

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`."""
        slot = self._table.try_add(element)
        if slot is None:
            return None
        if isinstance(element, Mark):
            segment = self._new_segment(None)
            segment.completed.append((slot, np.zeros(0, np.intp)))
            return slot
        segment = self._segments[-1] if self._segments else self._new_segment(self._new_order())
        if segment.order is None:
            segment = self._new_segment(self._new_order())
        assert segment.order is not None
        segment.order.add(slot, element)
        segment.open[slot] = None
        self._segment_of[slot] = segment
        return slot

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """See `ElementQueue`."""
        return self._note_completed(slot, self._table.complete(slot, rows))

    def expire(self, now_s: float) -> list[Expired]:
        """See `ElementQueue`."""
        expired = self._table.expire(now_s)
        for each in expired:
            self._note_completed(each.slot, each.rows)
        return expired

    def pop_completed(self) -> Emission | None:
        """The rows of the first segment that might leave first, or its watermark."""
        if not self._can_emit():
            return None
        segment = self._segments[0]
        slot, rows = segment.completed.popleft()
        is_last = self._table.release(slot, 1 if segment.order is None else len(rows))
        if segment.is_empty and len(self._segments) > 1:
            self._segments.popleft()
        return Emission(slot, rows, is_last)

    def next_deadline(self) -> float | None:
        """See `ElementQueue`."""
        return self._table.next_deadline()

    def free_places(self) -> int:
        """See `ElementQueue`."""
        return self._table.free_places()

    def pending(self) -> tuple[element_queue.Segment, ...]:
        """The segments that hold something; completed slots in the order in which they leave."""
        return tuple(
            element_queue.Segment(completed=segment.completed_slots(), open=tuple(segment.open))
            for segment in self._segments
            if not segment.is_empty
        )

    def statistics(self) -> QueueStatistics:
        """See `ElementQueue`."""
        return self._table.statistics(can_emit=self._can_emit())

    def check_invariants(self) -> None:
        """See `ElementQueue`."""
        self._table.check_invariants()
        assert not any(segment.is_empty for segment in list(self._segments)[:-1])
        assert self._segment_of == dict(self._open_slots())
        assert all(self._table.is_open(slot) for slot in self._segment_of)
        for segment in self._segments:
            if segment.order is not None:
                segment.order.check_invariants()
                assert segment.open or not segment.order.held()

    def _new_segment(self, order: SegmentOrder | None) -> _Segment:
        # An emptied segment goes when another follows: it would hide what stands behind it.
        if self._segments and self._segments[-1].is_empty:
            self._segments.pop()
        segment = _Segment(order)
        self._segments.append(segment)
        return segment

    def _note_completed(self, slot: SlotId, rows: Positions) -> bool:
        if not len(rows):
            return False
        segment = self._segment_of[slot]
        assert segment.order is not None
        segment.completed.extend(segment.order.complete(slot, rows))
        if not self._table.is_open(slot):
            del segment.open[slot]
            del self._segment_of[slot]
        return True

    def _can_emit(self) -> bool:
        return bool(self._segments) and bool(self._segments[0].completed)

    def _open_slots(self) -> Iterator[tuple[SlotId, _Segment]]:
        for segment in self._segments:
            yield from ((slot, segment) for slot in segment.open)


class UnorderedQueue(SegmentedQueue):
    """An `ElementQueue` in which rows overtake each other between two watermarks."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, OrderOfCompletion)


class OrderOfCompletion:
    """A `SegmentOrder` in which whatever is complete may leave."""

    def add(self, slot: SlotId, element: Slice) -> None:
        """See `SegmentOrder`."""

    def complete(self, slot: SlotId, rows: Positions) -> list[SlotRows]:
        """See `SegmentOrder`."""
        return [(slot, rows)]

    def held(self) -> list[SlotId]:
        """Nothing is held back."""
        return []

    def check_invariants(self) -> None:
        """See `SegmentOrder`."""


_WORTH_FORGETTING = 1024  # rows that have left; fewer of them cost less than a clean-up


class KeyOrderedQueue(SegmentedQueue):
    """An `ElementQueue` in which rows of different keys overtake each other."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, OrderOfKeys)

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`; raises ValueError for a slice without a hash for each row's key."""
        if isinstance(element, Slice):
            hashes = element.key_hashes
            if hashes is None or len(hashes) != element.size:
                raise ValueError("a slice in key order needs key_hashes, one for each row")
        return super().try_put(element)


class OrderOfKeys:
    """A `SegmentOrder`: a completed row waits for open rows of its key that came before it.

    Rows stand in arrays by arrival; `_by_key` lists them by hash, and by arrival for each hash. A
    row that is held back needs no account of its own: what holds it is an open row of its key,
    and when that one completes the whole key is looked at again.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(0, np.int64)  # [rows] ascending
        self._rows = np.zeros(0, np.intp)  # [rows] position in its slot, ascending for each slot
        self._hashes = np.zeros(0, np.uint64)  # [rows]
        self._is_open = np.zeros(0, np.bool_)  # [rows]
        self._has_left = np.zeros(0, np.bool_)  # [rows]
        self._by_key = np.zeros(0, np.intp)  # [rows]
        self._sorted_hashes = np.zeros(0, np.uint64)  # [rows] of `_by_key`

    def add(self, slot: SlotId, element: Slice) -> None:
        """See `SegmentOrder`."""
        hashes = element.key_hashes
        assert hashes is not None
        self._forget_left()
        known, size = len(self._slots), element.size
        self._slots = np.concatenate([self._slots, np.full(size, slot)])
        self._rows = np.concatenate([self._rows, np.arange(size)])
        self._hashes = np.concatenate([self._hashes, hashes])
        self._is_open = np.concatenate([self._is_open, np.ones(size, np.bool_)])
        self._has_left = np.concatenate([self._has_left, np.zeros(size, np.bool_)])
        newest = np.argsort(hashes, kind="stable")
        # Behind what has the same hash: those came before.
        places = np.searchsorted(self._sorted_hashes, hashes[newest], side="right")
        self._by_key = np.insert(self._by_key, places, known + newest)
        self._sorted_hashes = np.insert(self._sorted_hashes, places, hashes[newest])

    def complete(self, slot: SlotId, rows: Positions) -> list[SlotRows]:
        """See `SegmentOrder`."""
        start, stop = np.searchsorted(self._slots, [slot, slot + 1])
        completed = start + np.searchsorted(self._rows[start:stop], rows)
        self._is_open[completed] = False
        leaving = self._free(np.unique(self._hashes[completed]))
        self._has_left[leaving] = True
        slots = self._slots[leaving]
        parts = np.split(leaving, np.flatnonzero(np.diff(slots)) + 1) if len(leaving) else []
        return [(SlotId(int(self._slots[part[0]])), self._rows[part]) for part in parts]

    def held(self) -> list[SlotId]:
        """See `SegmentOrder`."""
        is_held = ~self._is_open & ~self._has_left
        return [SlotId(slot) for slot in np.unique(self._slots[is_held]).tolist()]

    def check_invariants(self) -> None:
        """For tests: the index is sorted and whole, and every row held back has its reason."""
        assert sorted(self._by_key.tolist()) == list(range(len(self._slots)))
        assert (self._hashes[self._by_key] == self._sorted_hashes).all()
        order = list(zip(self._sorted_hashes.tolist(), self._by_key.tolist(), strict=True))
        assert order == sorted(order)
        assert not (self._is_open & self._has_left).any()
        assert not len(self._free(np.unique(self._hashes)))

    def _free(self, hashes: npt.NDArray[np.uint64]) -> Positions:
        """Which rows of these keys are complete, still here, and behind no open one; ascending."""
        starts = np.searchsorted(self._sorted_hashes, hashes, side="left")
        lengths = np.searchsorted(self._sorted_hashes, hashes, side="right") - starts
        firsts = np.cumsum(lengths) - lengths  # of each key, in `members`
        members = self._by_key[np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)]
        is_open = self._is_open[members]
        opened = np.cumsum(is_open)  # up to and with each member, over all keys
        before = np.repeat(opened[firsts] - is_open[firsts], lengths)
        is_free = (opened == before) & ~self._has_left[members]
        return np.sort(members[is_free])

    def _forget_left(self) -> None:
        # Rows that have left hold nobody back; without this a segment without end would grow.
        count = int(np.count_nonzero(self._has_left))
        if count < max(_WORTH_FORGETTING, len(self._slots) // 2):
            return
        kept = ~self._has_left
        place = np.cumsum(kept) - 1
        is_kept = kept[self._by_key]
        self._by_key = place[self._by_key[is_kept]]
        self._sorted_hashes = self._sorted_hashes[is_kept]
        self._slots, self._rows = self._slots[kept], self._rows[kept]
        self._hashes, self._is_open = self._hashes[kept], self._is_open[kept]
        self._has_left = self._has_left[kept]
