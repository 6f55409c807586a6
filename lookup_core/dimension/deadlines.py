"""When each of many things is due, the earliest first.

A heap that forgets late: what was discarded stays in it until it comes to the top, or until most
of it is such. Not a timer: somebody else looks at the clock.
"""

import heapq
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=int)

_SLACK = 64  # entries of names that are gone; few of them cost less than a clean-up


class Deadlines(Generic[Name]):
    """Names, each with the moment at which it is due, in monotonic seconds."""

    def __init__(self) -> None:
        self._due_at: dict[Name, float] = {}
        self._heap: list[tuple[float, Name]] = []  # may hold names that are gone

    def __len__(self) -> int:
        return len(self._due_at)

    def add(self, name: Name, due_at: float) -> None:
        """Note when a new name is due."""
        assert name not in self._due_at
        self._due_at[name] = due_at
        heapq.heappush(self._heap, (due_at, name))

    def discard(self, name: Name) -> None:
        """Forget a name; harmless when it is gone."""
        self._due_at.pop(name, None)
        self._forget_discarded()

    def get(self, name: Name) -> float | None:
        """When this one is due; None if it is gone."""
        return self._due_at.get(name)

    def earliest(self) -> float | None:
        """When the first of all is due."""
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Name | None:
        """Take out the earliest, if it is due."""
        due_at = self.earliest()
        if due_at is None or due_at > now:
            return None
        _, name = heapq.heappop(self._heap)
        del self._due_at[name]
        self._forget_discarded()
        return name

    def check_invariants(self) -> None:
        """For tests: whoever is due is in the heap, and little else is."""
        assert {(due_at, name) for name, due_at in self._due_at.items()} <= set(self._heap)
        assert len(self._heap) <= 2 * len(self._due_at) + _SLACK

    def _is_valid(self, entry: tuple[float, Name]) -> bool:
        # A name that went and came again has another time by now, or the same, which is as good.
        due_at, name = entry
        return self._due_at.get(name) == due_at

    def _forget_discarded(self) -> None:
        # One that lies far ahead would keep its place, however long ago it was discarded.
        if len(self._heap) <= 2 * len(self._due_at) + _SLACK:
            return
        self._heap = [(due_at, name) for name, due_at in self._due_at.items()]
        heapq.heapify(self._heap)
