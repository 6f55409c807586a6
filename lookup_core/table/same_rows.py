"""Which rows of two batches are the same, value for value, whole columns at a time.

Stricter than SQL's equality: two nulls are the same, and so are two NaNs of the same bits; 0.0 and
-0.0 are not. A row that is wrongly called another one is only stored anew.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Mask = npt.NDArray[np.bool_]

_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """Of two batches of the same columns and as many rows: which rows have the same values."""
    is_same = np.ones(left.num_rows, np.bool_)
    for ours, theirs in zip(left.columns, right.columns, strict=True):
        is_same &= _same_values(ours, theirs)
    return is_same


def _same_values(left: pa.Array, right: pa.Array) -> Mask:
    if types.is_list(left.type):
        return _same_lists(left, right)
    kind = _BITS.get(left.type, left.type)
    equal = pc.equal(left.view(kind), right.view(kind))
    if not equal.null_count:
        return _mask(equal)
    are_null = pc.and_(left.is_null(), right.is_null())
    return _mask(pc.fill_null(equal, are_null))


def _same_lists(left: pa.ListArray, right: pa.ListArray) -> Mask:
    lengths = left.value_lengths()
    is_same = _same_values(lengths, right.value_lengths())
    sizes = np.where(is_same, lengths.fill_null(0).to_numpy(zero_copy_only=False), 0)
    filled = np.flatnonzero(sizes)
    if filled.size:
        at = pa.array(filled)
        are_same = _same_values(left.take(at).flatten(), right.take(at).flatten())
        starts = np.cumsum(sizes[filled]) - sizes[filled]
        is_same[filled] = np.logical_and.reduceat(are_same, starts)
    return is_same


def _mask(values: pa.BooleanArray) -> Mask:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)
