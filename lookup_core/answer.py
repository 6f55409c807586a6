"""Answers to keys of a lookup, in columns, and the outcome of each key."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode


class Outcome(IntEnum):
    """The terminal outcome of one key of a lookup.

    The values travel as one byte in RESULT frames and never change their meaning.
    """

    HIT = 0
    FETCHED = 1
    MISSING = 2
    STALE = 3
    DEFAULT = 4
    TIMEOUT = 5
    ERROR = 6

    @property
    def label(self) -> str:
        """The lower-case word that metrics, JSON and Spark columns show."""
        return self.name.lower()

    @property
    def has_row(self) -> bool:
        """Whether an answer with this outcome carries a row."""
        return self in _WITH_ROW


_WITH_ROW = frozenset({Outcome.HIT, Outcome.FETCHED, Outcome.STALE, Outcome.DEFAULT})


MOST_AGE_MS = 2**32 - 1  # seven weeks; what is older is told as old as that

_KEY_BYTES = 4 + 1 + 4  # position, outcome and age
_ERROR_BYTES = 100  # an entry of a dict, at the most


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes of n keys of one lookup; either every one of them has a row, or none has."""

    positions: npt.NDArray[np.int32]  # [n] which keys of the lookup, each at most once
    outcomes: npt.NDArray[np.uint8]  # [n] values of `Outcome`
    ages_ms: npt.NDArray[np.uint32]  # [n] since row or absence were asked for; 0 for errors
    rows: pa.RecordBatch | None  # [n] rows in the order of `positions`, or None
    errors: dict[int, ErrorCode] = field(default_factory=dict)  # {position: code}, few

    @property
    def size(self) -> int:
        """How many keys this answers."""
        return len(self.positions)

    @property
    def total_bytes(self) -> int:
        """What it takes in memory, about."""
        row_bytes = 0 if self.rows is None else int(self.rows.nbytes)
        return row_bytes + _KEY_BYTES * self.size + _ERROR_BYTES * len(self.errors)

    def moved(self, by: int) -> "Answer":
        """The same for keys that stand so many places further on."""
        if not by:
            return self
        errors = {position + by: code for position, code in self.errors.items()}
        return replace(self, positions=self.positions + np.int32(by), errors=errors)

    def placed(self, positions: npt.NDArray[np.int32]) -> "Answer":
        """The same for keys of which the one at i stands at `positions[i]`."""
        errors = {int(positions[position]): code for position, code in self.errors.items()}
        return replace(self, positions=positions[self.positions], errors=errors)

    def only(self, is_kept: npt.NDArray[np.bool_]) -> "Answer":
        """The answers to those of the n keys."""
        kept = self.positions[is_kept]
        named = set(kept.tolist()) if self.errors else set()
        return Answer(
            kept,
            self.outcomes[is_kept],
            self.ages_ms[is_kept],
            None if self.rows is None else self.rows.filter(pa.array(is_kept)),
            {position: code for position, code in self.errors.items() if position in named},
        )

    def pieces(self, max_bytes: int) -> Iterator["Answer"]:
        """The same in parts of about at most `max_bytes` of rows, each of one row at least."""
        row_bytes = 0 if self.rows is None else self.rows.nbytes
        if self.rows is None or row_bytes <= max_bytes:
            yield self
            return
        count = max(1, self.size * max_bytes // row_bytes)
        for start in range(0, self.size, count):
            part = slice(start, start + count)
            yield Answer(
                self.positions[part],
                self.outcomes[part],
                self.ages_ms[part],
                self.rows.slice(start, count),
            )


def rowless_answer(
    positions: npt.NDArray[np.int32], outcome: Outcome, *, error: ErrorCode | None = None
) -> Answer:
    """The answer without rows that gives all `positions` the same outcome (and error code)."""
    count = len(positions)
    errors = {} if error is None else dict.fromkeys(positions.tolist(), error)
    return Answer(
        positions=positions,
        outcomes=np.full(count, outcome, np.uint8),
        ages_ms=np.zeros(count, np.uint32),
        rows=None,
        errors=errors,
    )
