"""What each row of a batch takes in memory, of columns of flat types and lists of them.

About: validity, offsets and padding do not count.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_VARYING = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)


def row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each of n rows."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        total += _value_bytes(column)
    return total


def _value_bytes(column: pa.Array) -> npt.NDArray[np.int64] | int:
    if types.is_list(column.type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        ends = np.cumsum(lengths)
        values = column.flatten()
        sums = np.append(0, np.cumsum(np.broadcast_to(_value_bytes(values), len(values))))
        found: npt.NDArray[np.int64] = sums[ends] - sums[ends - lengths]
        return found
    if any(is_kind(column.type) for is_kind in _VARYING):
        lengths_bytes: npt.NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy()
        return lengths_bytes
    return int((column.type.bit_width + 7) // 8)
