"""Result of one lookup: its answers merged into columns, in the order of the request."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.errors import ErrorCode

_HAS_ROW = np.array([outcome.has_row for outcome in Outcome])


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The results of n keys, duplicates included."""

    outcomes: npt.NDArray[np.uint8]  # [n] values of `Outcome`
    ages_ms: npt.NDArray[np.uint32]  # [n]
    rows: pa.RecordBatch  # [n], or without columns; nulls for a key without a row
    errors: dict[int, ErrorCode]  # {position: code}

    @property
    def has_row(self) -> npt.NDArray[np.bool_]:
        """Whether each key has a row, which may consist of nulls."""
        return np.asarray(_HAS_ROW[self.outcomes])


def lookup_result(answers: Sequence[Answer], size: int, columns: pa.Schema) -> LookupResult:
    """Merge answers that together name each of `size` positions exactly once."""
    outcomes = np.full(size, Outcome.ERROR, np.uint8)
    ages_ms = np.zeros(size, np.uint32)
    errors: dict[int, ErrorCode] = {}
    for answer in answers:
        outcomes[answer.positions] = answer.outcomes
        ages_ms[answer.positions] = answer.ages_ms
        errors.update(answer.errors)
    return LookupResult(outcomes, ages_ms, _rows(answers, size, columns), errors)


def _rows(answers: Sequence[Answer], size: int, columns: pa.Schema) -> pa.RecordBatch:
    with_rows = [(answer.positions, answer.rows) for answer in answers if answer.rows is not None]
    if not with_rows or not len(columns):
        fields = [field.with_nullable(True) for field in columns]  # noqa: FBT003  # Arrow's
        nulls = [pa.nulls(size, field.type) for field in fields]
        return pa.record_batch(nulls, schema=pa.schema(fields))
    places = np.concatenate([positions for positions, _ in with_rows])
    rows = pa.concat_batches([rows for _, rows in with_rows])
    if len(places) == size and np.array_equal(places, np.arange(size)):
        return rows
    at = np.full(size, -1, np.int32)
    at[places] = np.arange(len(places), dtype=np.int32)
    return rows.take(pa.array(at, pa.int32(), mask=at < 0))
