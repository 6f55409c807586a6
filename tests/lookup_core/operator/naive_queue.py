"""A list model of the element queues: one record at a time, slow and plain.

What the real queues are compared with; it has no slices, masks or segments of its own.
"""

import itertools
import math
from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    """One record, or a watermark (then `row` is None)."""

    slot: int
    row: int | None
    deadline_s: float
    key: int
    is_open: bool
    freed: int | None = None  # since which step it may leave its segment


class NaiveQueue:
    """All entries in the order of arrival."""

    def __init__(self, capacity: int, mode: str) -> None:
        self.capacity = capacity
        self.mode = mode
        self.entries: list[Entry] = []
        self._step = 0
        self._slots = 0

    def put(self, keys: list[int], deadline_s: float) -> int | None:
        """Append a record for each key."""
        return self._append(
            [Entry(self._slots, row, deadline_s, key, is_open=True) for row, key in enumerate(keys)]
        )

    def mark(self) -> int | None:
        """Append a watermark."""
        return self._append([Entry(self._slots, None, math.inf, 0, is_open=False, freed=0)])

    def complete(self, slot: int, rows: set[int]) -> bool:
        """Complete records; whether any of them was open."""
        completing = [entry for entry in self._open(slot) if entry.row in rows]
        self._step += 1  # rows that become free together leave together, in their order
        for entry in completing:
            entry.is_open = False
        for entry in self.entries:
            if not entry.is_open and entry.freed is None and not self._is_held(entry):
                entry.freed = self._step
        return bool(completing)

    def expire(self, now_s: float) -> set[tuple[int, int | None]]:
        """Complete the open records whose time is up."""
        late = [entry for entry in self._open() if entry.deadline_s <= now_s]
        for slot in sorted({entry.slot for entry in late}, key=lambda slot: _due(late, slot)):
            self.complete(slot, {entry.row for entry in late if entry.row is not None})
        return {(entry.slot, entry.row) for entry in late}

    def next_deadline(self) -> float | None:
        """The earliest deadline of an open record."""
        return min((entry.deadline_s for entry in self._open()), default=None)

    def may_leave(self) -> list[tuple[int, int | None]]:
        """What may leave now, in order: records up to a watermark, or the watermark."""
        front = self._front()
        if self.mode == "ordered":
            front = list(itertools.takewhile(lambda entry: not entry.is_open, front))
        else:
            # Stable: those that became free together leave in the order of arrival.
            free = (entry for entry in front if entry.freed is not None)
            front = sorted(free, key=lambda entry: entry.freed or 0)
        return [(entry.slot, entry.row) for entry in front]

    def remove(self, slot: int, row: int | None) -> None:
        """One record or watermark has left."""
        self.entries = [entry for entry in self.entries if (entry.slot, entry.row) != (slot, row)]

    def _front(self) -> list[Entry]:
        marks = [index for index, entry in enumerate(self.entries) if entry.row is None]
        upto = marks[0] if marks else len(self.entries)
        return self.entries[: max(upto, 1)]

    def _append(self, entries: list[Entry]) -> int | None:
        if len(self.entries) + len(entries) > self.capacity:
            return None
        self.entries += entries
        slot, self._slots = self._slots, self._slots + 1
        return slot

    def _is_held(self, entry: Entry) -> bool:
        """Whether an open record of the same key stands before it in its segment."""
        if self.mode != "key_ordered":
            return False
        before = self.entries[: self.entries.index(entry)]
        segment = itertools.takewhile(lambda each: each.row is not None, reversed(before))
        return any(each.is_open and each.key == entry.key for each in segment)

    def _open(self, slot: int | None = None) -> list[Entry]:
        entries = (entry for entry in self.entries if slot is None or entry.slot == slot)
        return [entry for entry in entries if entry.is_open]


def _due(late: list[Entry], slot: int) -> tuple[float, int]:
    return min((entry.deadline_s, entry.slot) for entry in late if entry.slot == slot)
