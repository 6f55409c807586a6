"""Interleavings of a cache that changes and a reader of its arrays, step by step.

The writer runs once, and each array keeps its content after each store. Then the reader runs once
for each order of its loads among the stores: each load gets the content of its time.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import CacheView


class WatchedArray(np.ndarray[Any, Any]):
    """An array with its history; a store of several values is as many stores."""

    memory: "WatchedMemory | None"
    history: list[tuple[int, npt.NDArray[Any]]]  # (number of stores before, content)

    def __array_finalize__(self, origin: object) -> None:
        """Results of operations are not watched."""
        self.memory, self.history = None, []

    def __setitem__(self, where: Any, values: Any) -> None:  # noqa: ANN401 -- as numpy has it
        plain = self.view(np.ndarray)
        if self.memory is None:
            plain[where] = values
            return
        places = np.atleast_1d(np.arange(len(plain))[where])
        for at, value in zip(places, np.broadcast_to(values, places.shape), strict=True):
            plain[at] = value
            self.history.append((self.memory.step(), plain.copy()))

    def __getitem__(self, where: Any) -> Any:  # noqa: ANN401 -- as numpy has it
        return self.view(np.ndarray)[where]

    def take(self, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Load values: for a reader those of its time."""
        return self._now().take(*arguments, **options)

    def item(self, *arguments: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Load one value: for a reader that of its time."""
        return self._now().item(*arguments)

    def _now(self) -> npt.NDArray[Any]:
        if self.memory is None or not self.memory.is_read:
            return self.view(np.ndarray)
        return _at(self.history, self.memory.load())


def _at(history: list[tuple[int, Any]], time: int) -> Any:  # noqa: ANN401 -- of what the history is
    return next(content for since, content in reversed(history) if since <= time)


class WatchedMemory:
    """A `CacheMemory` whose arrays and views have a history."""

    is_shared = True

    def __init__(self) -> None:
        self.is_read = False
        self.stores = 0
        self.loads = 0
        self._times: tuple[int, ...] = ()  # of the loads to come
        self._views: list[tuple[int, CacheView]] = []

    def zeros(self, count: int, kind: Any) -> npt.NDArray[Any]:  # noqa: ANN401 -- any number
        """See `CacheMemory`."""
        array = np.zeros(count, kind).view(WatchedArray)
        array.memory, array.history = self, [(self.stores, np.zeros(count, kind))]
        return array

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        return rows

    def fence(self) -> None:
        """See `CacheMemory`: loads and stores are in order."""

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`: one store."""
        self._views.append((self.step(), view))

    def allow_reads(self, *, is_allowed: bool) -> None:
        """See `CacheMemory`: always."""

    def step(self) -> int:
        """Count a store."""
        self.stores += 1
        return self.stores

    def load(self) -> int:
        """Count a load; returns its time."""
        self.loads += 1
        return self._times[min(self.loads, len(self._times)) - 1]

    def read_at(self, *times: int) -> CacheView:
        """The view at the first time; from now on, each load is at the next of these times."""
        self.is_read, self.loads, self._times = True, 0, times
        found: CacheView = _at(self._views, self.load())
        return found


def interleavings(*, first: int, last: int, loads: int) -> Iterator[tuple[int, ...]]:
    """Every ascending choice of times for these loads."""
    return combinations_with_replacement(range(first, last + 1), loads)
