"""Element queue: slices and watermarks between arrival and emission; the queue in input order.

After Flink's `StreamElementQueue`, for slices instead of single records. The queues that reorder
records are in `segmented_queue`.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import NewType

import numpy as np
import numpy.typing as npt

SlotId = NewType("SlotId", int)
RowPositions = npt.NDArray[np.intp]  # ascending: rows of a run or of a slice
RowMask = npt.NDArray[np.bool_]  # [rows]
KeyHashes = npt.NDArray[np.uint64]  # [rows]

_NO_HASHES: KeyHashes = np.zeros(0, np.uint64)
_NO_ROWS: RowPositions = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows added together; each takes one place and completes on its own."""

    size: int
    deadline_s: float  # monotonic; open rows time out from then on
    key_hashes: KeyHashes = field(default_factory=lambda: _NO_HASHES)  # for `KeyOrderedQueue`


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark: complete on arrival, takes one place, never overtaken."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Rows of one slice that leave the queue, or one watermark (then `rows` is empty)."""

    slot: SlotId
    rows: RowPositions
    is_last: bool  # the slot is empty now


@dataclass(slots=True)
class _Slot:
    is_done: RowMask  # [rows]; empty for a watermark
    open_rows: int
    places: int  # rows that have not left, or 1 for a watermark


class ElementQueue(ABC):
    """A bounded queue of slices and watermarks; a subclass decides which rows leave next.

    Raises ValueError for a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"the capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self._slots: dict[SlotId, _Slot] = {}
        self._deadlines: list[tuple[float, SlotId]] = []  # heap; may hold completed slots
        self._next_slot = 0
        self._places = 0

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """Add the whole element; None without enough free places, ValueError without rows."""
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
            heapq.heappush(self._deadlines, (element.deadline_s, slot))
        else:
            self._slots[slot] = _Slot(np.zeros(0, np.bool_), 0, 1)
        self._append(slot, element)
        return slot

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """Mark rows as answered; False if none of them was open (late, repeated or unknown)."""
        return len(self._complete(slot, rows)) > 0

    def expire(self, now_s: float) -> list[SlotId]:
        """Complete the open rows of all slices whose deadline is not after `now_s`.

        They leave in their turn.
        """
        expired = []
        while (deadline_s := self.next_deadline()) is not None and deadline_s <= now_s:
            slot = self._deadlines[0][1]
            self._complete(slot, np.ones_like(self._slots[slot].is_done))
            expired.append(slot)
        return expired

    @abstractmethod
    def pop_completed(self) -> Emission | None:
        """Remove the next rows or watermark that may leave, and free their places; or None."""

    def next_deadline(self) -> float | None:
        """The earliest deadline of a slice with open rows."""
        while self._deadlines and not self._is_open(self._deadlines[0][1]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def free_places(self) -> int:
        """How many more rows or watermarks fit in."""
        return self.capacity - self._places

    def check_invariants(self) -> None:
        """For tests: the sums match the slots, and every open slot has its deadline."""
        slots = self._slots
        assert self._places == sum(slot.places for slot in slots.values()) <= self.capacity
        for slot in slots.values():
            assert slot.open_rows == np.count_nonzero(~slot.is_done)
            assert slot.open_rows <= slot.places
        open_slots = {slot for slot in slots if self._is_open(slot)}
        assert open_slots <= {slot for _, slot in self._deadlines}

    @abstractmethod
    def _append(self, slot: SlotId, element: Slice | Mark) -> None:
        """Place a new slot behind all others."""

    def _complete(self, slot: SlotId, rows: RowMask) -> RowPositions:
        """Complete rows; returns those that were open until now."""
        found = self._slots.get(slot)
        if found is None or not found.open_rows:
            return _NO_ROWS
        newly = np.flatnonzero(rows & ~found.is_done)
        found.is_done[newly] = True
        found.open_rows -= len(newly)
        return newly

    def _release(self, slot: SlotId, count: int) -> bool:
        """Free `count` places of the slot; True if it is empty now."""
        found = self._slots[slot]
        found.places -= count
        self._places -= count
        if not found.places:
            del self._slots[slot]
        return not found.places

    def _is_open(self, slot: SlotId) -> bool:
        return slot in self._slots and self._slots[slot].open_rows > 0


class OrderedQueue(ElementQueue):
    """An element queue in input order: only the completed rows at its front leave."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._order: deque[SlotId] = deque()

    def pop_completed(self) -> Emission | None:
        """The completed rows at the front of the oldest element."""
        if not self._order:
            return None
        slot = self._order[0]
        head = self._slots[slot]
        rows = self._completed_front(head)
        is_mark = not len(head.is_done)
        if not len(rows) and not is_mark:
            return None
        is_last = self._release(slot, max(len(rows), 1))
        if is_last:
            self._order.popleft()
        return Emission(slot, rows, is_last)

    def check_invariants(self) -> None:
        """For tests: slots are in the order of arrival."""
        super().check_invariants()
        assert list(self._order) == sorted(self._slots)

    def _append(self, slot: SlotId, element: Slice | Mark) -> None:
        del element
        self._order.append(slot)

    @staticmethod
    def _completed_front(head: _Slot) -> RowPositions:
        """The rows behind those that have left, up to the first open one; none of a watermark."""
        if not len(head.is_done):
            return _NO_ROWS
        start = len(head.is_done) - head.places
        length = int(np.argmin(head.is_done[start:])) if head.open_rows else head.places
        return np.arange(start, start + length)
