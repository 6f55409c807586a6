"""Interleavings of a cache that changes and a reader of its arrays, load by load.

The writer runs once, and each cell of an array keeps its values with the times of their stores.
Then the reader runs once for each order of its loads among the stores that makes a difference: of
the times at which a cell has the same value, the earliest one leaves all later orders possible.

With weak memory, loads between two fences of the reader are in any order, and so are the stores
between two fences of the writer to readers.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import CacheView

Result = TypeVar("Result")
History = list[tuple[int, Any]]  # values and the times since which they are there, ascending


class WatchedArray(np.ndarray[Any, Any]):
    """An array with the history of each cell; several values are as many loads or stores."""

    memory: "WatchedMemory | None"
    cells: list[History]

    def __array_finalize__(self, origin: object) -> None:
        """Results of operations are not watched."""
        self.memory, self.cells = None, []

    def fill(self, value: Any) -> None:  # noqa: ANN401  # as numpy has it
        """Store the same value everywhere."""
        self[:] = value

    def __setitem__(self, where: Any, values: Any) -> None:  # noqa: ANN401  # as numpy has it
        plain = self.view(np.ndarray)
        if self.memory is None:
            plain[where] = values
            return
        places = np.atleast_1d(np.arange(len(plain))[where])
        for at, value in zip(places, np.broadcast_to(values, places.shape), strict=True):
            plain[at] = value
            self.cells[at].append((self.memory.step(), plain[at]))

    def __getitem__(self, where: Any) -> Any:  # noqa: ANN401  # as numpy has it
        return self.view(np.ndarray)[where]

    def take(self, indices: Any, *, mode: Any = "raise") -> Any:  # type: ignore[override]  # noqa: ANN401
        """Load values: for a reader those of the chosen times."""
        plain = self.view(np.ndarray)
        if self.memory is None or not self.memory.is_read:
            return plain.take(indices, mode=mode)
        places = np.arange(len(plain)).take(indices, mode=mode)
        loads = [self.memory.load(self.cells[at]) for at in places.ravel()]
        return np.array(loads, self.dtype).reshape(places.shape)

    def item(self, place: int) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Load one value: for a reader that of the chosen time."""
        if self.memory is None or not self.memory.is_read:
            return self.view(np.ndarray).item(place)
        return self.memory.load(self.cells[place]).item()


class WatchedMemory:
    """A `CacheMemory` whose arrays and views have a history."""

    is_shared = True

    def __init__(self, *, is_weak: bool = False) -> None:
        self.is_read = False
        self.stores = 0
        self._is_weak = is_weak
        self._fences = [0]  # of the writer: their times
        self._views: History = []  # with their numbers
        self._changes: History = [(0, 1)]
        self._fresh_at: History = [(0, 0.0)]
        self._floor = 0  # no load is earlier
        self._latest = 0  # load since the last fence
        self._choices: list[int] = []  # of each load of the reader, among its options
        self._options: list[int] = []  # their number

    def zeros(self, count: int, kind: Any) -> npt.NDArray[Any]:  # noqa: ANN401  # any number
        """See `CacheMemory`."""
        array = np.zeros(count, kind).view(WatchedArray)
        array.memory, array.cells = self, [[(self.stores, kind(0))] for _ in range(count)]
        return array

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        return rows

    def fence(self) -> None:
        """See `CacheMemory`: a fence of the writer, or of the reader."""
        if self.is_read:
            self._floor = max(self._floor, self._latest)
        else:
            self._fences.append(self.stores)

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`: one store, behind all former ones."""
        self._fences.append(self.stores)
        self._views.append((self.step(), (len(self._views), view)))
        self._fences.append(self.stores)

    def allow_reads(self, *, until: float) -> None:
        """See `CacheMemory`: always."""

    def begin_change(self) -> None:
        """See `CacheMemory`."""
        self._count_changes(is_whole=False)
        self.fence()

    def end_change(self, *, is_whole: bool) -> None:
        """See `CacheMemory`."""
        self.fence()
        self._count_changes(is_whole=is_whole)

    def confirm(self, fresh_at: float) -> None:
        """See `CacheMemory`."""
        self._fresh_at.append((self.step(), fresh_at))

    def step(self) -> int:
        """Count a store; returns its time."""
        self.stores += 1
        return self.stores

    def view(self) -> tuple[int, CacheView]:
        """Load the published view and its number, as a reader does at first."""
        found: tuple[int, CacheView] = self.load(self._views)
        self.fence()
        return found

    @property
    def map_number(self) -> int:
        """See `TableState`."""
        number, _ = self.load(self._views)
        return int(number)

    @property
    def changes(self) -> int:
        """See `TableState`."""
        return int(self.load(self._changes))

    @property
    def fresh_at(self) -> float:
        """See `TableState`."""
        return float(self.load(self._fresh_at))

    def load(self, history: History) -> Any:  # noqa: ANN401  # of what the history is
        """The value of the chosen time."""
        first = bisect_right(history, self._floor, key=itemgetter(0)) - 1
        options: dict[Any, int] = {}
        for since, value in history[first:]:
            options.setdefault(value[0] if isinstance(value, tuple) else value, since)
        times = list(options.values())
        if len(self._choices) == len(self._options):
            self._choices.append(0)
        since = times[self._choices[len(self._options)]]
        self._options.append(len(times))
        self._note(max(since, self._floor))
        return history[bisect_right(history, max(since, self._floor), key=itemgetter(0)) - 1][1]

    def _count_changes(self, *, is_whole: bool) -> None:
        changes = self._changes[-1][1]
        self._changes.append((self.step(), changes + (changes % 2 == is_whole)))

    def _note(self, time: int) -> None:
        if not self._is_weak:
            self._floor = time
            return
        # Visible with this store: what the writer stored before its last fence.
        fence = self._fences[bisect_right(self._fences, time - 1) - 1] if time else 0
        self._latest = max(self._latest, fence)

    def readings(self, read: Callable[[], Result], *, since: int) -> Iterator[Result]:
        """The results of a read that begins at this time, for every order of its loads."""
        self.is_read, self._choices = True, []
        while True:
            self._floor, self._latest, self._options = since, 0, []
            yield read()
            while self._choices and self._choices[-1] + 1 == self._options[len(self._choices) - 1]:
                self._choices.pop()
            if not self._choices:
                break
            self._choices[-1] += 1
        self.is_read = False
