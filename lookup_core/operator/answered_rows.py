"""The dimension's rows that answers brought for the keys of one question, kept as they came.

Columns only: how the lookups ended is the question's to know.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.row_bytes import row_bytes

Keys = npt.NDArray[np.integer]  # positions of distinct keys in their question
_NO_ROW = -1


class AnsweredRows:
    """Rows for some of `key_count` keys; `columns` is what a row consists of."""

    def __init__(self, key_count: int, columns: pa.Schema) -> None:
        self._columns = columns
        self._row_of_key = np.full(key_count, _NO_ROW, np.int64)  # counted over all parts
        self._row_bytes = np.zeros(key_count, np.int64)
        self._parts: list[pa.RecordBatch] = []
        self._starts = [0]  # of each part's rows; the last is how many rows there are

    @property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return sum(part.nbytes for part in self._parts)

    def add(self, keys: Keys, rows: pa.RecordBatch) -> None:
        """Keep the rows of these keys, which had none so far."""
        start = self._starts[-1]
        self._row_of_key[keys] = np.arange(start, start + len(keys))
        self._row_bytes[keys] = row_bytes(rows) if rows.num_columns else 0
        self._parts.append(rows)
        self._starts.append(start + len(keys))

    def take(self, keys: Keys) -> list[pa.Array]:
        """The columns for these keys, in this order; null where a key has no row."""
        wanted = self._row_of_key[keys]
        start, part = self._part_with(wanted)
        if part is None:
            return [pa.nulls(len(keys), field.type) for field in self._columns]
        is_absent = wanted == _NO_ROW
        mask = is_absent if is_absent.any() else None
        indices = pa.array(wanted - start, pa.int64(), mask=mask)
        return [column.take(indices) for column in part.columns]

    def bytes_of(self, keys: Keys) -> npt.NDArray[np.int64]:
        """What the row of each key would take once more."""
        return self._row_bytes[keys]

    @property
    def largest_row_bytes(self) -> int:
        """What the largest of the rows takes."""
        return int(self._row_bytes.max(initial=0))

    def check_invariants(self) -> None:
        """For tests: every row belongs to exactly one key."""
        used = self._row_of_key[self._row_of_key != _NO_ROW]
        assert sorted(used.tolist()) == list(range(self._starts[-1]))
        assert len(self._starts) == len(self._parts) + 1

    def _part_with(self, wanted: npt.NDArray[np.int64]) -> tuple[int, pa.RecordBatch | None]:
        # Where rows come in many partial answers, what is emitted mostly stands in one of them.
        last = int(wanted.max(initial=_NO_ROW))
        if last == _NO_ROW:
            return 0, None
        lowest = int(wanted.min(where=wanted != _NO_ROW, initial=last))
        index = int(np.searchsorted(self._starts, lowest, side="right")) - 1
        if last < self._starts[index + 1]:
            return self._starts[index], self._parts[index]
        self._parts = [pa.concat_batches(self._parts)]
        self._starts = [0, self._starts[-1]]
        return 0, self._parts[0]
