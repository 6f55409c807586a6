"""A list model of the element queues: one record at a time, slow and plain.

What the real queues are compared with; it has no slices, masks or segments of its own.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    """One record, or a watermark (then `row` is None)."""

    slot: int
    row: int | None
    deadline_s: float
    completed: int | None = None  # when, in steps; None: open


class NaiveQueue:
    """All entries in the order of arrival."""

    def __init__(self, capacity: int, *, is_ordered: bool) -> None:
        self.capacity = capacity
        self.is_ordered = is_ordered
        self.entries: list[Entry] = []
        self._step = 0
        self._slots = 0

    def put(self, size: int | None, deadline_s: float) -> int | None:
        """Append `size` records, or a watermark for None."""
        rows: list[int | None] = [None] if size is None else list(range(size))
        if len(self.entries) + len(rows) > self.capacity:
            return None
        slot, self._slots = self._slots, self._slots + 1
        for row in rows:
            self.entries.append(Entry(slot, row, deadline_s, 0 if row is None else None))
        return slot

    def complete(self, slot: int, rows: set[int]) -> bool:
        """Complete records; whether any of them was open."""
        completing = [entry for entry in self._open(slot) if entry.row in rows]
        self._step += 1  # rows that complete together leave together, in their order
        for entry in completing:
            entry.completed = self._step
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
        if not self.is_ordered:
            front = sorted(
                (entry for entry in front if entry.completed is not None),
                key=lambda entry: (entry.completed, entry.row),
            )
        leaving = []
        for entry in front:
            if entry.completed is None:
                break
            leaving.append((entry.slot, entry.row))
        return leaving

    def remove(self, slot: int, row: int | None) -> None:
        """One record or watermark has left."""
        self.entries = [entry for entry in self.entries if (entry.slot, entry.row) != (slot, row)]

    def _front(self) -> list[Entry]:
        marks = [index for index, entry in enumerate(self.entries) if entry.row is None]
        upto = marks[0] if marks else len(self.entries)
        return self.entries[: max(upto, 1)]

    def _open(self, slot: int | None = None) -> list[Entry]:
        entries = (entry for entry in self.entries if slot is None or entry.slot == slot)
        return [entry for entry in entries if entry.completed is None]


def _due(late: list[Entry], slot: int) -> tuple[float, int]:
    return min((entry.deadline_s, entry.slot) for entry in late if entry.slot == slot)
