"""Answered rows: the rows of the dimension in the answers to one run, by owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.compatibility import concat_batches
from lookup_core.operator.element_queue import RowMask
from lookup_core.operator.row_products import Counts, Elements
from lookup_core.row_bytes import most_row_bytes, row_bytes, value_bytes

Owners = npt.NDArray[np.integer]  # keys of a run or, with `as_of`, its rows
Number = TypeVar("Number", bound=np.generic)
_NO_ROW = -1
MAX_JOINED_BYTES = 64 * 1024 * 1024  # larger answers are not joined

_ValueSizes = npt.NDArray[np.int64] | int  # an integer: all values have this size


class AnsweredRows:
    """Rows of the dimension for some of `count` owners; `columns` is their schema.

    Parts of more than `max_joined_bytes` are never joined, because a text column of Arrow holds at
    most 2 GiB.
    """

    def __init__(self, count: int, columns: pa.Schema, *, max_joined_bytes: int) -> None:
        self._max_joined_bytes = max_joined_bytes
        self._columns = columns
        self._row_of = np.full(count, _NO_ROW, np.int64)  # position over all parts
        self._parts: list[pa.RecordBatch] = []
        self._starts = [0]  # the first row of each part, then the number of rows
        self.total_bytes = 0
        self._max_row_bytes = 0  # in the measured parts
        self._measured_parts = 0
        self._element_sizes: dict[int, Sequence[_ValueSizes]] = {}  # {part: by column}

    def add_owners(self, count: int) -> None:
        """Add owners without a row behind the others."""
        self._row_of = longer(self._row_of, count, _NO_ROW)

    def add_rows(
        self, owners: Owners, rows: pa.RecordBatch, places: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Store the rows of owners without a row.

        `places` is the row of each owner, -1 for none; by default owner i gets row i.
        """
        start = self._starts[-1]
        if places is None:
            places = np.arange(len(owners))
        self._row_of[owners] = np.where(places < 0, _NO_ROW, places + start)
        self._parts.append(rows)
        self.total_bytes += rows.nbytes
        # A batch without columns has no row count.
        count = max(rows.num_rows, int(places.max(initial=_NO_ROW)) + 1)
        self._starts.append(start + count)

    @property
    def max_row_bytes(self) -> int:
        """An upper bound of the bytes of one row."""
        for part in self._parts[self._measured_parts :]:
            self._max_row_bytes = max(self._max_row_bytes, most_row_bytes(part))
        self._measured_parts = len(self._parts)
        return self._max_row_bytes

    def has(self, owners: Owners) -> npt.NDArray[np.bool_]:
        """Which of these owners have a row."""
        return self._row_of[owners] != _NO_ROW

    def take(self, owners: Owners, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """The columns, all by default, for these owners, in this order; null without a row."""
        found = self._found(owners, columns)
        if found is None:
            chosen = range(len(self._columns)) if columns is None else columns
            return [pa.nulls(len(owners), self._columns.field(each).type) for each in chosen]
        if found.are_all:
            return list(found.rows.columns)
        indices = pa.array(found.places, pa.int64(), mask=found.mask)
        return [column.take(indices) for column in found.rows.columns]

    def counts(self, owners: Owners) -> Counts:
        """The length of the lists of each owner's row, 0 without one."""
        lengths = [np.diff(part.column(0).offsets.to_numpy()) for part in self._parts]
        of_rows = np.concatenate([*lengths, np.zeros(1, np.int64)])
        return of_rows[self._row_of[owners]]  # _NO_ROW is the last, 0

    def take_elements(self, owners: Owners, elements: Elements) -> list[pa.Array]:
        """One element of the lists of each owner's row, null for NO_ELEMENT."""
        found = self._found(owners)
        if found is None:
            kinds = [field.type.value_type for field in self._columns]
            return [pa.nulls(len(owners), kind) for kind in kinds]
        mask = elements < 0
        taken = []
        for column in found.rows.columns:
            begins = column.offsets.to_numpy()[np.where(mask, 0, found.places)]
            places = pa.array(begins + elements, pa.int64(), mask=mask)
            taken.append(column.values.take(places))
        return taken

    def element_bytes(self, owners: Owners, elements: Elements) -> npt.NDArray[np.int64]:
        """The bytes of what `take_elements` gives for each owner."""
        wanted = self._row_of[owners]
        total = np.zeros(len(owners), np.int64)
        for number, part in enumerate(self._parts):
            start, stop = self._starts[number : number + 2]
            which = np.flatnonzero((wanted >= start) & (wanted < stop) & (elements >= 0))
            if not len(which):
                continue
            rows = wanted[which] - start
            for column, sizes in zip(part.columns, self._element_sizes_of(number), strict=True):
                if isinstance(sizes, int):
                    total[which] += sizes
                else:
                    total[which] += sizes[column.offsets.to_numpy()[rows] + elements[which]]
        return total

    def bytes_of(self, owners: Owners) -> npt.NDArray[np.int64]:
        """The bytes of each owner's row, 0 without one; reads all rows."""
        if not len(self._columns):  # then the parts have no row count
            return np.zeros(len(owners), np.int64)
        of_rows = np.concatenate([*map(row_bytes, self._parts), np.zeros(1, np.int64)])
        return of_rows[self._row_of[owners]]  # _NO_ROW is the last, 0

    def check_invariants(self) -> None:
        """For tests: every owner has a stored row or none."""
        assert ((self._row_of >= _NO_ROW) & (self._row_of < self._starts[-1])).all()
        assert len(self._starts) == len(self._parts) + 1

    def _element_sizes_of(self, number: int) -> Sequence[_ValueSizes]:
        part = self._parts[number]
        if number not in self._element_sizes:
            self._element_sizes[number] = [value_bytes(column.values) for column in part.columns]
        return self._element_sizes[number]

    def _found(self, owners: Owners, columns: Sequence[int] | None = None) -> "_FoundRows | None":
        """A batch with the columns, all by default, of the owners' rows; None if none has one."""
        wanted = self._row_of[owners]
        last = int(wanted.max(initial=_NO_ROW))
        if last == _NO_ROW:
            return None
        # Emitted rows are usually in one part, even with many partial answers.
        lowest = int(wanted.view(np.uint64).min())  # _NO_ROW is the largest number
        index = int(np.searchsorted(self._starts, lowest, side="right")) - 1
        if last >= self._starts[index + 1]:
            if self.total_bytes > self._max_joined_bytes:
                return self._gathered(wanted, columns)
            are_measured = self._measured_parts == len(self._parts)
            self._measured_parts = 1 if are_measured else 0
            self._parts = [concat_batches(self._parts)]
            self._starts = [0, self._starts[-1]]
            self._element_sizes = {}
            index = 0
        mask = wanted == _NO_ROW if int(wanted.min()) == _NO_ROW else None
        part = _selected(self._parts[index], columns)
        return _FoundRows(part, wanted - self._starts[index], mask)

    def _gathered(
        self, wanted: npt.NDArray[np.int64], columns: Sequence[int] | None
    ) -> "_FoundRows":
        """A copy of the wanted rows only."""
        mask = wanted == _NO_ROW
        kept = np.unique(wanted[~mask])
        bounds = kept.searchsorted(self._starts).tolist()
        rows = [
            _selected(part, columns).take(pa.array(kept[begin:end] - start))
            for part, start, (begin, end) in zip(
                self._parts, self._starts[:-1], pairwise(bounds), strict=True
            )
            if begin < end
        ]
        return _FoundRows(concat_batches(rows), kept.searchsorted(wanted), mask)


@dataclass(frozen=True, slots=True)
class _FoundRows:
    rows: pa.RecordBatch  # the wanted columns
    places: npt.NDArray[np.int64]  # [owners] the row of each
    mask: RowMask | None  # [owners] without a row; None if each has one

    @property
    def are_all(self) -> bool:
        """Whether owner i has row i, and there are no others."""
        count = len(self.places)
        return count == self.rows.num_rows and np.array_equal(self.places, np.arange(count))


def longer(numbers: npt.NDArray[Number], count: int, value: int) -> npt.NDArray[Number]:
    """The numbers, and behind them as many times the value as `count`."""
    found = np.empty(len(numbers) + count, numbers.dtype)
    found[: len(numbers)] = numbers
    found[len(numbers) :] = value
    return found


def _selected(rows: pa.RecordBatch, columns: Sequence[int] | None) -> pa.RecordBatch:
    return rows if columns is None else rows.select(columns)
