"""Approximate bytes of each row of a batch, nested types included.

Validity bitmaps, offsets and padding are not included.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

ROW_BYTES = 8 * 2**20  # the default limit of one row
LISTED_ROW_BYTES = 128  # that each of several rows of a key counts more, for its decoding

_VARYING = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)


def row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of each of n rows."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        total += value_bytes(column)
    return total


def fixed_row_bytes(kinds: Sequence[pa.DataType]) -> int | None:
    """The bytes of each row with columns of these types; None if rows differ."""
    if any(types.is_nested(kind) for kind in kinds):
        return None
    try:
        return sum(kind.bit_width for kind in kinds) // 8
    except ValueError:  # texts and bytes have none
        return None


def most_row_bytes(rows: pa.RecordBatch) -> int:
    """An upper bound of the bytes of a row, much cheaper than `row_bytes`."""
    return sum(_most_value_bytes(column) for column in rows.columns) if rows.num_rows else 0


def largest_column(rows: pa.RecordBatch) -> str:
    """The name of the column with most bytes; empty without columns."""
    return max(rows.schema.names, key=lambda name: rows.column(name).nbytes, default="")


def value_bytes(column: pa.Array) -> npt.NDArray[np.int64] | int:
    """The bytes of each value, or of any value if all have the same."""
    if types.is_struct(column.type):
        fields = [value_bytes(field) for field in column.flatten()]
        return np.broadcast_to(sum(fields), len(column))
    if types.is_map(column.type):  # a dimension has none, but records may
        offsets = column.offsets.to_numpy()
        entries = [
            np.broadcast_to(value_bytes(each), len(each)) for each in (column.keys, column.items)
        ]
        sums = np.append(0, np.cumsum(sum(entries)))
        sizes: npt.NDArray[np.int64] = sums[offsets[1:]] - sums[offsets[:-1]]
        return sizes
    if types.is_list(column.type) or types.is_large_list(column.type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        ends = np.cumsum(lengths)
        values = column.flatten()
        sums = np.append(0, np.cumsum(np.broadcast_to(value_bytes(values), len(values))))
        found: npt.NDArray[np.int64] = sums[ends] - sums[ends - lengths]
        return found
    if _has_varying_size(column.type):
        lengths_bytes: npt.NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy()
        return lengths_bytes
    return 0 if types.is_null(column.type) else int((column.type.bit_width + 7) // 8)


def _most_value_bytes(column: pa.Array) -> int:
    if _has_varying_size(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    if types.is_struct(column.type):
        return sum(_most_value_bytes(field) for field in column.flatten())
    return int(np.max(value_bytes(column)))


def _has_varying_size(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _VARYING)
