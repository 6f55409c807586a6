"""Keys that no LOOKUP of their channel can carry, because one alone takes more than its credit.

Estimated from above: a key close to the bound may be refused although it would just fit.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.row_bytes import row_bytes

_PADDING_BYTES = 32  # of a column's buffers, at the most, and its validity


def too_large_keys(keys: pa.RecordBatch, most_bytes: int) -> npt.NDArray[np.int32]:
    """Positions of the keys that take more than so many bytes on the wire, each on its own."""
    if keys.nbytes < most_bytes // 2:
        return np.zeros(0, np.int32)  # and what stands around them is far below the other half
    around_bytes = len(encode_batch(keys.slice(0, 0))) + _PADDING_BYTES * keys.num_columns
    return np.flatnonzero(row_bytes(keys) + around_bytes > most_bytes).astype(np.int32)
