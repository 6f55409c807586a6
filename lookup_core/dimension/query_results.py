"""Query results: maps the rows of one query to its keys, and to the answers of lookups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.errors import ErrorCode

NO_ROW = -1
SEVERAL_ROWS = -2


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, and which of them each key has."""

    row_of: npt.NDArray[np.int32]  # [keys] row number, NO_ROW or SEVERAL_ROWS
    rows: pa.RecordBatch
    age_ms: int  # since the query was sent: a row may have changed from then on

    @classmethod
    def of_rows(cls, key_count: int, fetched: FetchedRows, *, age_ms: int) -> "QueryResult":
        """The result of a backend's rows."""
        ordinals = fetched.ordinals
        row_of = np.full(key_count, NO_ROW, np.int32)
        row_of[ordinals] = np.arange(len(ordinals), dtype=np.int32)
        row_of[np.bincount(ordinals, minlength=key_count) > 1] = SEVERAL_ROWS
        return cls(row_of, fetched.rows, age_ms)

    def answers(
        self,
        positions: npt.NDArray[np.int32],
        ordinals: npt.NDArray[np.int32],
        columns: Sequence[str],
    ) -> Iterator[Answer]:
        """The answers to one lookup: its `positions` are the `ordinals` of the query."""
        row_of = self.row_of[ordinals]
        has_row = row_of >= 0
        if has_row.any():
            yield Answer(
                positions=positions[has_row],
                outcomes=np.full(int(has_row.sum()), Outcome.FETCHED, np.uint8),
                ages_ms=np.full(int(has_row.sum()), self.age_ms, np.uint32),
                rows=self.rows.select(columns).take(pa.array(row_of[has_row])),
            )
        if (missing := positions[row_of == NO_ROW]).size:
            ages_ms = np.full(missing.size, self.age_ms, np.uint32)
            yield replace(rowless_answer(missing, Outcome.MISSING), ages_ms=ages_ms)
        if (ambiguous := positions[row_of == SEVERAL_ROWS]).size:
            yield rowless_answer(ambiguous, Outcome.ERROR, error=ErrorCode.AMBIGUOUS)
