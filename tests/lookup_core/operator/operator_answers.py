"""Builders for the tests of the operator: answers to some of a answers's keys."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode

COLUMNS = pa.schema({"name": pa.utf8(), "size": pa.int32()})


def positions(*keys: int) -> npt.NDArray[np.int32]:
    """RowPositions of keys as they come in an answer."""
    return np.array(keys, np.int32)


def with_rows(keys: list[int], rows: pa.RecordBatch) -> Answer:
    """A row for each key, 7 ms old."""
    outcomes, ages_ms = np.full(len(keys), Outcome.HIT, np.uint8), np.full(len(keys), 7, np.uint32)
    return Answer(positions(*keys), outcomes, ages_ms, rows)


def hits(*keys: int) -> Answer:
    """A row of `key + 5` bytes for each key below 10."""
    names = pa.array(["x" * key + str(key) for key in keys], pa.utf8())
    return with_rows([*keys], pa.record_batch([names, pa.array(keys, pa.int32())], COLUMNS))


def missing(*keys: int) -> Answer:
    """No row for these keys."""
    return rowless_answer(positions(*keys), Outcome.MISSING)


def failed(*keys: int, error: ErrorCode = ErrorCode.TYPE) -> Answer:
    """An error for these keys."""
    return rowless_answer(positions(*keys), Outcome.ERROR, error=error)
