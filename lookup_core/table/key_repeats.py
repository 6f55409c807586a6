"""Which keys of a batch are there more than once, exactly and for all keys at once.

Not a look at what is kept: only the batch is known here.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import CanonicalKeys


def key_repeats(keys: CanonicalKeys) -> npt.NDArray[np.bool_]:
    """Which keys have an equal one beside them."""
    codes = _codes(keys)
    if len(np.unique(codes)) == len(codes):  # as a rule: sorting alone is the cheapest look
        return np.zeros(len(codes), np.bool_)
    _, which, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1, np.bool_)


def last_of_each(keys: CanonicalKeys) -> npt.NDArray[np.int32]:
    """Where each key is for the last time, ascending."""
    _, from_end = np.unique(_codes(keys)[::-1], return_index=True)
    return np.sort(keys.size - 1 - from_end).astype(np.int32)


def _codes(keys: CanonicalKeys) -> npt.NDArray[np.uint64] | npt.NDArray[np.int32]:
    # Equal hashes are no proof where the key has bytes of its own.
    if keys.parts is None:
        return keys.hashes
    return np.asarray(keys.parts.dictionary_encode().indices.to_numpy(), np.int32)
