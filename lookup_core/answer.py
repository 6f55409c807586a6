"""The answer to some of a lookup's keys, in columns.

Not a per-key object: an answer is made, sent and taken from as a whole.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode
from lookup_core.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes of n keys of one lookup; either every one of them has a row, or none has."""

    positions: npt.NDArray[np.int32]  # [n] which keys of the lookup, each at most once
    outcomes: npt.NDArray[np.uint8]  # [n] values of `Outcome`
    ages_ms: npt.NDArray[np.uint32]  # [n] since the row was read; 0 without a row
    rows: pa.RecordBatch | None  # [n] rows in the order of `positions`, or None
    errors: dict[int, ErrorCode] = field(default_factory=dict)  # {position: code}, few

    @property
    def size(self) -> int:
        """How many keys this answers."""
        return len(self.positions)


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
