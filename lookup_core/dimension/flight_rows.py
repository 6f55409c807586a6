"""Rows of flights and of their waiters, in numpy columns by number."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.intp]  # of flights or waiters

_FEWEST_ROWS = 64

FLIGHT: dict[str, npt.DTypeLike] = {
    "key_id": object,
    "hash": np.uint64,  # of the key
    "batch_id": np.int64,
    "may_keep": np.bool_,  # its row may be cached, and any lookup may join it
    "postponed_to": np.float64,  # the next attempt for a missing key, or _NOT_POSTPONED
    "on_missing": object,  # the retries of a postponed flight's lookups
    "waiters": np.int32,  # the number of open ones
    "first": np.intp,  # the waiter that started it; all others are its followers
    "has_followers": np.bool_,
}
WAITER: dict[str, npt.DTypeLike] = {
    "lookup_id": np.int64,  # _NO_LOOKUP once it is closed: answered, or its lookup has left
    "position": np.int32,
    "flight": np.intp,
}


class NumberedRows:
    """Row allocator over numpy columns: a row has a number until it is given back."""

    def __init__(self, kinds: Mapping[str, npt.DTypeLike]) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in kinds.items()
        }
        self._free = np.zeros(0, np.intp)  # the first `_free_count` of them
        self._free_count = 0

    def __len__(self) -> int:
        return len(self._free) - self._free_count

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """A column over all numbers; a reference to it is valid until the next `take`."""
        return self._columns[column]

    def take(self, count: int) -> Numbers:
        """Free numbers; their rows hold former values or zeros."""
        if count > self._free_count:
            self._grow(count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def give_back(self, numbers: Numbers) -> None:
        """Free numbers, for use by a later `take`."""
        self._free[self._free_count : self._free_count + len(numbers)] = numbers
        self._free_count += len(numbers)

    def _grow(self, count: int) -> None:
        before = len(self._free)
        more = max(_FEWEST_ROWS, before, count)
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate((column, np.zeros(more, column.dtype)))
        free = self._free[: self._free_count]
        news = np.arange(before, before + more)
        self._free = np.concatenate((free, news, np.zeros(before - len(free), np.intp)))
        self._free_count += more
