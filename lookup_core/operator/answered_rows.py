"""The dimension's rows that answers brought for the askers of one question, kept as they came.

An asker is a distinct key, or a record where each has a version of its own. Columns only: how the
lookups ended is the question's to know.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.row_bytes import most_row_bytes, row_bytes

Askers = npt.NDArray[np.integer]  # positions in their question
_NO_ROW = -1


class AnsweredRows:
    """Rows for some of `count` askers; `columns` is what a row consists of."""

    def __init__(self, count: int, columns: pa.Schema) -> None:
        self._columns = columns
        self._row_of = np.full(count, _NO_ROW, np.int64)  # counted over all parts
        self._parts: list[pa.RecordBatch] = []
        self._starts = [0]  # of each part's rows; the last is how many rows there are
        self._most_row_bytes = 0

    @property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return sum(part.nbytes for part in self._parts)

    def add(
        self, askers: Askers, rows: pa.RecordBatch, places: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Keep the rows of these askers, which had none so far.

        `places`: which of the rows each gets, -1 for none; otherwise one after the other.
        """
        start = self._starts[-1]
        if places is None:
            places = np.arange(len(askers))
        self._row_of[askers] = np.where(places < 0, _NO_ROW, places + start)
        self._most_row_bytes = max(self._most_row_bytes, most_row_bytes(rows))
        self._parts.append(rows)
        # Rows without columns do not tell how many they are.
        count = max(rows.num_rows, int(places.max(initial=_NO_ROW)) + 1)
        self._starts.append(start + count)

    def has(self, askers: Askers) -> npt.NDArray[np.bool_]:
        """Which of these have a row."""
        return self._row_of[askers] != _NO_ROW

    def take(self, askers: Askers) -> list[pa.Array]:
        """The columns for these askers, in this order; null where one has no row."""
        wanted = self._row_of[askers]
        last = int(wanted.max(initial=_NO_ROW))
        if last == _NO_ROW:
            return [pa.nulls(len(askers), field.type) for field in self._columns]
        lowest = int(wanted.view(np.uint64).min())  # without a row it is the largest number
        mask = wanted == _NO_ROW if int(wanted.min()) == _NO_ROW else None
        start, part = self._part_with(lowest, last)
        indices = pa.array(wanted - start, pa.int64(), mask=mask)
        return [column.take(indices) for column in part.columns]

    def bytes_of(self, askers: Askers) -> npt.NDArray[np.int64]:
        """What the row of each asker would take once more; reads all rows."""
        of_rows = np.concatenate([*map(row_bytes, self._parts), np.zeros(1, np.int64)])
        return of_rows[self._row_of[askers]]  # without a row the last one, which is 0

    @property
    def most_row_bytes(self) -> int:
        """At least what the largest of the rows takes."""
        return self._most_row_bytes

    def check_invariants(self) -> None:
        """For tests: what anybody has is a row that is kept."""
        assert ((self._row_of >= _NO_ROW) & (self._row_of < self._starts[-1])).all()
        assert len(self._starts) == len(self._parts) + 1

    def _part_with(self, lowest: int, last: int) -> tuple[int, pa.RecordBatch]:
        # Where rows come in many partial answers, what is emitted mostly stands in one of them.
        index = int(np.searchsorted(self._starts, lowest, side="right")) - 1
        if last < self._starts[index + 1]:
            return self._starts[index], self._parts[index]
        self._parts = [pa.concat_batches(self._parts)]
        self._starts = [0, self._starts[-1]]
        return 0, self._parts[0]
