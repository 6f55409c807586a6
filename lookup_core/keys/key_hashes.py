"""A stable 64-bit hash of each key as its sender has it, NULLs included.

The same on every machine and in every version, so that work may be divided by it. Not seeded, so
not for tables that a chooser of keys could flood: those use `canonical_keys`.
"""

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.keys.canonical_keys import canonical_keys

NULL_HASH = 0  # of every key with a NULL part: none of them equals anything


def key_hashes(keys: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """The hashes of n keys; integers of any width have that of their value."""
    if not any(column.null_count for column in keys.columns):
        return canonical_keys(keys).hashes
    is_whole = functools.reduce(pc.and_, [column.is_valid() for column in keys.columns])
    hashes = np.full(keys.num_rows, NULL_HASH, np.uint64)
    hashes[is_whole.to_numpy(zero_copy_only=False)] = canonical_keys(keys.filter(is_whole)).hashes
    return hashes
