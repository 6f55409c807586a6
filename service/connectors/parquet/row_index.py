"""Immutable index of a table by key, for batches of keys; a key may have several rows.

Each key value becomes its rank among the sorted distinct values of its column. The ranks of a
composite key are folded into one number, again a rank. Every step is a binary search in columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowMatches:
    """Pairs of a key (ordinal in the batch) and one of its rows (position in the table)."""

    ordinals: npt.NDArray[np.int32]  # [m] ascending; more than once where a key has several rows
    positions: npt.NDArray[np.int64]  # [m]


class RowIndex:
    """An index over the key columns of a table; rows with a NULL in the key are left out."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        parts = [_comparable(column.combine_chunks()) for column in columns]
        is_whole = np.ones(len(columns[0]), np.bool_)
        for part in parts:
            is_whole &= part.is_valid().to_numpy(zero_copy_only=False)
        whole = np.flatnonzero(is_whole)
        self._values: list[pa.Array] = []  # per key column: sorted distinct values
        self._folds: list[_Codes] = []  # per further key column: sorted distinct codes
        codes = self._build([part.take(pa.array(whole, pa.int64())) for part in parts])
        order = np.argsort(codes, kind="stable")
        self._codes = codes[order]
        self._positions = whole[order]

    def find(self, keys: pa.RecordBatch) -> RowMatches:
        """The rows of the keys; unknown keys and keys with a NULL have none."""
        codes = self._codes_of(keys)
        first = np.searchsorted(self._codes, codes, side="left")
        counts = np.searchsorted(self._codes, codes, side="right") - first
        ordinals = np.repeat(np.arange(len(codes), dtype=np.int32), counts)
        ends = np.cumsum(counts)
        steps = np.arange(len(ordinals)) - np.repeat(ends - counts, counts)
        return RowMatches(ordinals, self._positions[np.repeat(first, counts) + steps])

    def _build(self, parts: Sequence[pa.Array]) -> _Codes:
        codes: _Codes = np.zeros(len(parts[0]), np.int64)
        for part in parts:
            values = pc.unique(part)
            values = values.take(pc.sort_indices(values))
            folded = codes * len(values) + _ranks(values, part)
            if self._values:
                self._folds.append(np.unique(folded))
                folded = np.searchsorted(self._folds[-1], folded)
            self._values.append(values)
            codes = folded
        return codes

    def _codes_of(self, keys: pa.RecordBatch) -> _Codes:
        """The code of each key; -1 for unknown keys."""
        codes: _Codes = np.zeros(keys.num_rows, np.int64)
        if len(self._codes) == 0:
            return codes - 1
        for number, (values, column) in enumerate(zip(self._values, keys.columns, strict=True)):
            needles = _comparable(column)
            ranks = np.minimum(_ranks(values, needles), len(values) - 1)
            is_known = _are_equal(values.take(pa.array(ranks, pa.int64())), needles) & (codes >= 0)
            folded = codes * len(values) + ranks
            if number > 0:
                fold = self._folds[number - 1]
                place = np.minimum(np.searchsorted(fold, folded), len(fold) - 1)
                is_known &= fold[place] == folded
                folded = place
            codes = np.where(is_known, folded, -1)
        return codes


def _ranks(values: pa.Array, needles: pa.Array) -> _Codes:
    ranks = pc.call_function("search_sorted", [values, needles])
    return np.asarray(ranks.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _are_equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    equal: pa.Array = pc.equal(left, right)
    filled = equal.fill_null(pa.scalar(value=False))
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)


def _comparable(column: pa.Array) -> pa.Array:
    """The keys in a type that Arrow can search, with the same equality."""
    if types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if types.is_decimal(column.type):
        return column.cast(pa.utf8())
    return column
