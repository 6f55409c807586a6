"""Answers of lookups as columns, and the outcome of each key."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode

MOST_AGE_MS = 2**32 - 1  # seven weeks; greater ages are reported as this one

_KEY_BYTES = 4 + 1 + 4  # position, outcome and age
_ERROR_ENTRY_BYTES = 100  # in a dict, at most


class Outcome(IntEnum):
    """The final outcome of one key; the values are part of the wire protocol."""

    HIT = 0
    FETCHED = 1
    MISSING = 2
    STALE = 3
    DEFAULT = 4
    TIMEOUT = 5
    ERROR = 6

    @property
    def label(self) -> str:
        """The lower-case name in metrics, JSON and Spark columns."""
        return self.name.lower()

    @property
    def has_row(self) -> bool:
        """Whether an answer with this outcome has a row."""
        return self in _WITH_ROW


_WITH_ROW = frozenset({Outcome.HIT, Outcome.FETCHED, Outcome.STALE, Outcome.DEFAULT})


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes of n keys of one lookup; either all keys have a row, or none."""

    positions: npt.NDArray[np.int32]  # [n] distinct positions in the lookup
    outcomes: npt.NDArray[np.uint8]  # [n] values of `Outcome`
    ages_ms: npt.NDArray[
        np.uint32
    ]  # [n] since the query of the row or negative entry; 0 for errors
    rows: pa.RecordBatch | None  # [n] in the order of `positions`; without columns of any length
    errors: dict[int, ErrorCode] = field(default_factory=dict)  # {position: code}

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.positions)

    @property
    def total_bytes(self) -> int:
        """Approximate memory."""
        row_bytes = 0 if self.rows is None else int(self.rows.nbytes)
        return row_bytes + _KEY_BYTES * self.size + _ERROR_ENTRY_BYTES * len(self.errors)

    def moved(self, by: int) -> "Answer":
        """The answer with its positions shifted by `by`."""
        if not by:
            return self
        errors = {position + by: code for position, code in self.errors.items()}
        return replace(self, positions=self.positions + np.int32(by), errors=errors)

    def placed(self, positions: npt.NDArray[np.int32]) -> "Answer":
        """The answer with position i replaced by `positions[i]`."""
        errors = {int(positions[position]): code for position, code in self.errors.items()}
        return replace(self, positions=positions[self.positions], errors=errors)

    def only(self, is_kept: npt.NDArray[np.bool_]) -> "Answer":
        """The answer to the selected ones of the n keys."""
        rows, kept = self.rows, self.positions[is_kept]
        if rows is not None and rows.num_columns:
            rows = rows.filter(pa.array(is_kept))
        named = set(kept.tolist()) if self.errors else set()
        return Answer(
            kept,
            self.outcomes[is_kept],
            self.ages_ms[is_kept],
            rows,
            {position: code for position, code in self.errors.items() if position in named},
        )

    def pieces(self, max_bytes: int) -> Iterator["Answer"]:
        """The answer in parts of about `max_bytes` of rows at most, and of at least one row."""
        row_bytes = 0 if self.rows is None else self.rows.nbytes
        if self.rows is None or row_bytes <= max_bytes:
            yield self
            return
        yield from self.parts(max(1, self.size * max_bytes // row_bytes))

    def parts(self, count: int) -> Iterator["Answer"]:
        """The answer in parts of at most `count` keys."""
        for start in range(0, self.size, count):
            part = slice(start, start + count)
            positions = self.positions[part]
            named = set(positions.tolist()) if self.errors else set()
            yield Answer(
                positions,
                self.outcomes[part],
                self.ages_ms[part],
                None if self.rows is None else self.rows.slice(start, count),
                {at: code for at, code in self.errors.items() if at in named},
            )


def ages_ms(ages_s: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Ages of rows, given in seconds, as answers have them; those below 0 are 0.

    A row may be queried after the time of a lookup, and be cached before it is looked up.
    """
    ages = ages_s * 1000
    np.maximum(ages, 0, out=ages)
    np.minimum(ages, MOST_AGE_MS, out=ages)
    return ages.astype(np.uint32)


def with_default(answer: Answer, row: pa.RecordBatch) -> Answer:
    """The answer; for missing keys with this row, of the answer's columns."""
    if answer.rows is not None or not answer.size or answer.outcomes[0] != Outcome.MISSING:
        return answer
    outcomes = np.full(answer.size, Outcome.DEFAULT, np.uint8)
    rows = row.take(pa.array(np.zeros(answer.size, np.int32)))
    return replace(answer, outcomes=outcomes, rows=rows)


def rowless_answer(
    positions: npt.NDArray[np.int32], outcome: Outcome, *, error: ErrorCode | None = None
) -> Answer:
    """An answer without rows: the same outcome, and error code, for all positions."""
    count = len(positions)
    errors = {} if error is None else dict.fromkeys(positions.tolist(), error)
    return Answer(
        positions=positions,
        outcomes=np.full(count, outcome, np.uint8),
        ages_ms=np.zeros(count, np.uint32),
        rows=None,
        errors=errors,
    )
