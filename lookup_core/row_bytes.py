"""What each row of a batch takes in memory, of columns of flat types.

About: validity and padding do not count.
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
        if any(is_kind(column.type) for is_kind in _VARYING):
            total += pc.binary_length(column).fill_null(0).to_numpy()
        else:
            total += (column.type.bit_width + 7) // 8
    return total
