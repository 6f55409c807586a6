"""The dimension's rows that answers brought for the keys of one question, kept as they came.

Columns only: how the lookups ended is the question's to know.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.row_bytes import most_row_bytes, row_bytes

Keys = npt.NDArray[np.integer]  # positions of distinct keys in their question
_NO_ROW = -1


class AnsweredRows:
    """Rows for some of `key_count` keys; `columns` is what a row consists of."""

    def __init__(self, key_count: int, columns: pa.Schema) -> None:
        self._columns = columns
        self._row_of_key = np.full(key_count, _NO_ROW, np.int64)  # counted over all parts
        self._parts: list[pa.RecordBatch] = []
        self._starts = [0]  # of each part's rows; the last is how many rows there are
        self._most_row_bytes = 0

    @property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return sum(part.nbytes for part in self._parts)

    def add(self, keys: Keys, rows: pa.RecordBatch) -> None:
        """Keep the rows of these keys, which had none so far."""
        start = self._starts[-1]
        self._row_of_key[keys] = np.arange(start, start + len(keys))
        self._most_row_bytes = max(self._most_row_bytes, most_row_bytes(rows))
        self._parts.append(rows)
        self._starts.append(start + len(keys))

    def take(self, keys: Keys) -> list[pa.Array]:
        """The columns for these keys, in this order; null where a key has no row."""
        wanted = self._row_of_key[keys]
        lowest, last = int(wanted.min(initial=self._starts[-1])), int(wanted.max(initial=_NO_ROW))
        if last == _NO_ROW:
            return [pa.nulls(len(keys), field.type) for field in self._columns]
        mask = None
        if lowest == _NO_ROW:
            mask = wanted == _NO_ROW
            lowest = int(wanted.min(where=~mask, initial=last))
        start, part = self._part_with(lowest, last)
        indices = pa.array(wanted - start, pa.int64(), mask=mask)
        return [column.take(indices) for column in part.columns]

    def bytes_of(self, keys: Keys) -> npt.NDArray[np.int64]:
        """What the row of each key would take once more; reads all rows."""
        of_rows = np.concatenate([*map(row_bytes, self._parts), np.zeros(1, np.int64)])
        return of_rows[self._row_of_key[keys]]  # without a row the last one, which is 0

    @property
    def most_row_bytes(self) -> int:
        """At least what the largest of the rows takes."""
        return self._most_row_bytes

    def check_invariants(self) -> None:
        """For tests: every row belongs to exactly one key."""
        used = self._row_of_key[self._row_of_key != _NO_ROW]
        assert sorted(used.tolist()) == list(range(self._starts[-1]))
        assert len(self._starts) == len(self._parts) + 1

    def _part_with(self, lowest: int, last: int) -> tuple[int, pa.RecordBatch]:
        # Where rows come in many partial answers, what is emitted mostly stands in one of them.
        index = int(np.searchsorted(self._starts, lowest, side="right")) - 1
        if last < self._starts[index + 1]:
            return self._starts[index], self._parts[index]
        self._parts = [pa.concat_batches(self._parts)]
        self._starts = [0, self._starts[-1]]
        return 0, self._parts[0]
