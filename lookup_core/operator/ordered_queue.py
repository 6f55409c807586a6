"""The element queue that keeps the order of its input.

Only the head leaves, its completed rows at once. Not for records that may overtake each other: see
`unordered_queue`. After Flink's `OrderedStreamElementQueue`.
"""

from collections import deque

import numpy as np

from lookup_core.operator.element_queue import (
    Emission,
    Expired,
    Mark,
    QueueStatistics,
    RowMask,
    Segment,
    Slice,
    SlotId,
    SlotTable,
)


class OrderedQueue:
    """An `ElementQueue` in which nothing overtakes anything."""

    def __init__(self, capacity: int) -> None:
        self._table = SlotTable(capacity)
        self._order: deque[SlotId] = deque()

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`."""
        slot = self._table.try_add(element)
        if slot is not None:
            self._order.append(slot)
        return slot

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """See `ElementQueue`."""
        return len(self._table.complete(slot, rows)) > 0

    def expire(self, now_s: float) -> list[Expired]:
        """See `ElementQueue`."""
        return self._table.expire(now_s)

    def pop_completed(self) -> Emission | None:
        """The completed rows at the front of the oldest element."""
        if not self._can_emit():
            return None
        slot = self._order[0]
        is_mark = self._table.is_mark(slot)
        rows = np.zeros(0, np.intp) if is_mark else self._table.completed_prefix(slot)
        is_last = self._table.release(slot, 1 if is_mark else len(rows))
        if is_last:
            self._order.popleft()
        return Emission(slot, rows, is_last)

    def next_deadline(self) -> float | None:
        """See `ElementQueue`."""
        return self._table.next_deadline()

    def free_places(self) -> int:
        """See `ElementQueue`."""
        return self._table.free_places()

    def pending(self) -> tuple[Segment, ...]:
        """One segment for each element, in order: that is what it means to be ordered."""
        return tuple(self._segment(slot) for slot in self._order)

    def statistics(self) -> QueueStatistics:
        """See `ElementQueue`."""
        return self._table.statistics(can_emit=self._can_emit())

    def check_invariants(self) -> None:
        """See `ElementQueue`."""
        self._table.check_invariants()
        assert list(self._order) == sorted(self._order)
        assert self._table.free_places() < self._table.capacity or not self._order

    def _can_emit(self) -> bool:
        if not self._order:
            return False
        head = self._order[0]
        return self._table.is_mark(head) or self._table.has_completed_prefix(head)

    def _segment(self, slot: SlotId) -> Segment:
        if self._table.is_open(slot):
            return Segment(completed=(), open=(slot,))
        return Segment(completed=(slot,), open=())
