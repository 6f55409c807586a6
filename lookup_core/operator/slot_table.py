"""The books of an element queue: whose places are taken, whose rows are open, and until when.

No order: which of the completed rows may leave is the business of the queues that keep a table.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from lookup_core.operator.element_queue import (
    Expired,
    Mark,
    Positions,
    QueueStatistics,
    RowMask,
    Slice,
    SlotId,
)


@dataclass(slots=True)
class _Slot:
    is_done: RowMask  # [rows]; empty for a watermark
    open_rows: int
    places: int  # rows that have not left, or 1 for a watermark


class SlotTable:
    """Slots with their rows; counts places exactly."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"the capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self._slots: dict[SlotId, _Slot] = {}
        self._deadlines: list[tuple[float, SlotId]] = []  # heap; completed slots stay until met
        self._next_slot = 0
        self._places = 0
        self._open_rows = 0
        self._expired_total = 0

    def try_add(self, element: Slice | Mark) -> SlotId | None:
        """A slot for the element, or None without enough places."""
        size = element.size if isinstance(element, Slice) else 1
        if size < 1:
            raise ValueError("a slice has at least one row")
        if size > self.free_places():
            return None
        slot = SlotId(self._next_slot)
        self._next_slot += 1
        self._places += size
        if isinstance(element, Slice):
            self._slots[slot] = _Slot(np.zeros(size, np.bool_), size, size)
            self._open_rows += size
            heapq.heappush(self._deadlines, (element.deadline_s, slot))
        else:
            self._slots[slot] = _Slot(np.zeros(0, np.bool_), 0, 1)
        return slot

    def complete(self, slot: SlotId, rows: RowMask) -> Positions:
        """The positions of those rows that were open until now."""
        found = self._slots.get(slot)
        if found is None or not found.open_rows:
            return np.zeros(0, np.intp)
        newly = np.flatnonzero(rows & ~found.is_done)
        found.is_done[newly] = True
        found.open_rows -= len(newly)
        self._open_rows -= len(newly)
        return newly

    def expire(self, now_s: float) -> list[Expired]:
        """Complete the open rows of all slots whose deadline is not after `now_s`."""
        expired = []
        while (deadline_s := self.next_deadline()) is not None and deadline_s <= now_s:
            slot = self._deadlines[0][1]
            rows = self.complete(slot, np.ones_like(self._slots[slot].is_done))
            self._expired_total += len(rows)
            expired.append(Expired(slot, rows))
        return expired

    def next_deadline(self) -> float | None:
        """The earliest deadline of a slot with open rows."""
        while self._deadlines and not self.is_open(self._deadlines[0][1]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def release(self, slot: SlotId, count: int) -> bool:
        """Free `count` places of the slot; whether it is gone with that."""
        found = self._slots[slot]
        found.places -= count
        self._places -= count
        if not found.places:
            del self._slots[slot]
        return not found.places

    def completed_prefix(self, slot: SlotId) -> Positions:
        """The rows behind those that have left, up to the first open one."""
        found = self._slots[slot]
        start = len(found.is_done) - found.places
        is_done = found.is_done[start:]
        length = len(is_done) if not found.open_rows else int(np.argmin(is_done))
        return np.arange(start, start + length)

    def has_completed_prefix(self, slot: SlotId) -> bool:
        """Whether there are such rows."""
        found = self._slots[slot]
        return bool(found.is_done[len(found.is_done) - found.places])

    def is_mark(self, slot: SlotId) -> bool:
        """Whether the slot holds a watermark."""
        return not len(self._slots[slot].is_done)

    def is_open(self, slot: SlotId) -> bool:
        """Whether the slot has rows without an answer."""
        return slot in self._slots and self._slots[slot].open_rows > 0

    def free_places(self) -> int:
        """How many more rows or watermarks fit in."""
        return self.capacity - self._places

    def statistics(self, *, can_emit: bool) -> QueueStatistics:
        """A snapshot; what may leave only the queue knows."""
        return QueueStatistics(
            capacity=self.capacity,
            size=self._places,
            open_rows=self._open_rows,
            expired_total=self._expired_total,
            can_emit=can_emit,
        )

    def check_invariants(self) -> None:
        """For tests: the sums are those of the slots, and every open slot has its deadline."""
        slots = self._slots
        assert self._places == sum(slot.places for slot in slots.values()) <= self.capacity
        assert self._open_rows == sum(slot.open_rows for slot in slots.values())
        for slot in slots.values():
            assert slot.open_rows == np.count_nonzero(~slot.is_done)
            assert slot.open_rows <= slot.places
        assert {slot for slot in slots if self.is_open(slot)} <= {
            slot for _, slot in self._deadlines
        }
