"""Numbered rows: numpy columns whose rows have numbers, allocated and given back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.intp]

_MIN_ROWS = 64


class NumberedRows:
    """Row allocator over numpy columns: a row has a number until it is given back.

    A reference to one of `columns` is valid until the next `allocate`.
    """

    def __init__(self, kinds: Mapping[str, npt.DTypeLike]) -> None:
        self.columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in kinds.items()
        }
        self._free = np.zeros(0, np.intp)  # the first `_free_count` of them
        self._free_count = 0

    def __len__(self) -> int:
        return len(self._free) - self._free_count

    def allocate(self, count: int) -> Numbers:
        """Free numbers; their rows hold former values or zeros."""
        if count > self._free_count:
            self._grow(count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def give_back(self, numbers: Numbers) -> None:
        """Free numbers, for use by a later `allocate`."""
        self._free[self._free_count : self._free_count + len(numbers)] = numbers
        self._free_count += len(numbers)

    def _grow(self, count: int) -> None:
        before = len(self._free)
        more = max(_MIN_ROWS, before, count)
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate((column, np.zeros(more, column.dtype)))
        free = self._free[: self._free_count]
        news = np.arange(before, before + more)
        self._free = np.concatenate((free, news, np.zeros(before - len(free), np.intp)))
        self._free_count += more
