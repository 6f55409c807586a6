"""Element queue contract and the slot table that all queues share.

After Flink's StreamElementQueue, over slices instead of single records.
"""

import heapq
from dataclasses import dataclass
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

SlotId = NewType("SlotId", int)
Positions = npt.NDArray[np.intp]  # of rows in their slice, ascending
RowMask = npt.NDArray[np.bool_]  # [rows of the slice]
KeyHashes = npt.NDArray[np.uint64]  # [rows of the slice]


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows that were put together; each takes one place, and completes on its own."""

    size: int
    deadline_s: float  # monotonic; from then on what is open counts as timed out
    # Rows with equal keys have equal hashes; needed only where keys keep their order.
    key_hashes: KeyHashes | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark: complete on arrival, takes one place, and nothing overtakes it."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Rows of one slice that leave now, or one watermark (then there are no rows)."""

    slot: SlotId
    rows: Positions
    is_last: bool  # nothing of this slot is left inside


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows of one slice whose time was up; they are complete now and leave in their turn."""

    slot: SlotId
    rows: Positions


@dataclass(frozen=True, slots=True)
class Segment:
    """What stands between two watermarks, or one watermark: slots with rows inside."""

    completed: tuple[SlotId, ...]  # with rows that are complete and not emitted
    open: tuple[SlotId, ...]  # with rows that are not complete


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Levels and totals of one queue."""

    capacity: int
    size: int  # places taken: rows and watermarks that have not left
    open_rows: int  # rows without an answer
    expired_total: int  # rows completed by `expire`, since the start
    can_emit: bool  # `pop_completed` would return something


class ElementQueue(Protocol):
    """A bounded queue of slices and watermarks."""

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """Take the whole element in, or return None if there are not enough free places."""

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """Mark rows as answered; False if none of them was open (late, again, or unknown)."""

    def expire(self, now_s: float) -> list[Expired]:
        """Complete what is open in slices whose deadline is not after `now_s`."""

    def pop_completed(self) -> Emission | None:
        """The next that may leave, or None; its places are free from then on."""

    def next_deadline(self) -> float | None:
        """When `expire` will have something to do, or None."""

    def free_places(self) -> int:
        """How many rows or watermarks fit in now."""

    def pending(self) -> tuple[Segment, ...]:
        """What has not left, oldest first."""

    def statistics(self) -> QueueStatistics:
        """A snapshot."""

    def check_invariants(self) -> None:
        """For tests: AssertionError when the books do not agree."""


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
