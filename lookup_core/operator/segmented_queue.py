"""The element queue in which records may overtake each other, but never a watermark.

Segments are divided by watermarks; what may leave does so from the first one only. Which completed
rows may leave their segment is the order's to say: see `unordered_queue` and `key_ordered_queue`.
After Flink's `UnorderedStreamElementQueue`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

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
)
from lookup_core.operator.slot_table import SlotTable

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
