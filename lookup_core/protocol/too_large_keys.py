"""Keys that no LOOKUP of their channel can carry, because one alone takes more than its credit.

Estimated from above: a key close to the bound may be refused although it would just fit.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.row_bytes import most_row_bytes, row_bytes

_MESSAGE_BYTES = 256  # of a message without columns
_COLUMN_BYTES = 64  # of its metadata, for each column: one node and three buffers
# Arrow cuts a buffer only where it saves 64 bytes: the first of many small numbers, sent alone, may
# take so many more. Values, offsets (16 bytes of their own) and validity, each with such a rest.
_ROUNDING_BYTES = 208  # for each column


def too_large_keys(keys: pa.RecordBatch, most_bytes: int) -> npt.NDArray[np.int32]:
    """Positions of the keys that take more than so many bytes on the wire, each on its own."""
    rounding_bytes = _ROUNDING_BYTES * keys.num_columns
    metadata_bytes = _MESSAGE_BYTES + _COLUMN_BYTES * keys.num_columns
    left_bytes = most_bytes - metadata_bytes - rounding_bytes
    # Not even all of them together, or at least not the largest: the usual cases.
    if keys.nbytes <= left_bytes or most_row_bytes(keys) <= left_bytes:
        return np.zeros(0, np.int32)
    # Not a slice: Arrow writes all offsets of a text column for one that is empty.
    nothing = keys.take(pa.array([], pa.int32()))
    around_bytes = len(encode_batch(nothing)) + _COLUMN_BYTES + rounding_bytes
    return np.flatnonzero(row_bytes(keys) + around_bytes > most_bytes).astype(np.int32)
