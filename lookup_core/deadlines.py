"""Deadline queue: a heap of due times with lazy deletion.

Not a timer: the caller reads the clock.
"""

import heapq
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=int)

_SLACK = 64  # discarded entries; few of them cost less than a clean-up


class Deadlines(Generic[Name]):
    """Names, each with the time at which it is due, in monotonic seconds."""

    def __init__(self) -> None:
        self._due_at: dict[Name, float] = {}
        self._heap: list[tuple[float, Name]] = []  # may hold discarded names

    def __len__(self) -> int:
        return len(self._due_at)

    def add(self, name: Name, due_at: float) -> None:
        """Add a new name."""
        assert name not in self._due_at
        self._due_at[name] = due_at
        heapq.heappush(self._heap, (due_at, name))

    def discard(self, name: Name) -> None:
        """Remove a name; a no-op for others."""
        self._due_at.pop(name, None)
        self._forget_discarded()

    def get(self, name: Name) -> float | None:
        """The due time of a name; None if it is not here."""
        return self._due_at.get(name)

    def earliest(self) -> float | None:
        """The earliest due time."""
        while self._heap:
            due_at, name = self._heap[0]
            # A name that was discarded and added again has another time, or an equal one.
            if self._due_at.get(name) == due_at:
                return due_at
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> Name | None:
        """Remove and return the earliest name, if it is due."""
        due_at = self.earliest()
        if due_at is None or due_at > now:
            return None
        _, name = heapq.heappop(self._heap)
        del self._due_at[name]
        self._forget_discarded()
        return name

    def check_invariants(self) -> None:
        """For tests: the heap holds all names, and few others."""
        assert {(due_at, name) for name, due_at in self._due_at.items()} <= set(self._heap)
        assert len(self._heap) <= 2 * len(self._due_at) + _SLACK

    def _forget_discarded(self) -> None:
        # A discarded entry far in the future would never reach the top of the heap.
        if len(self._heap) <= 2 * len(self._due_at) + _SLACK:
            return
        self._heap = [(due_at, name) for name, due_at in self._due_at.items()]
        heapq.heapify(self._heap)


def earliest(*due_times: float | None) -> float | None:
    """The earliest of these times, without those that are None; None if all are."""
    return min((due_at for due_at in due_times if due_at is not None), default=None)
