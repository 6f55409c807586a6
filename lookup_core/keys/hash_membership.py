"""Which of some hashes are among others: quick where either side is small, sorted where none is.

For hashes whose low bits are mixed. Says nothing about keys: two of them may have one hash.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes

_MARKS = 2**16


def is_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    """Which of the hashes are also in `others`; both may have duplicates."""
    if not (len(hashes) and len(others)):
        return np.zeros(len(hashes), np.bool_)
    # Sorting the larger side would cost more than all else: what may be equal is found first, on
    # both sides.
    found = np.zeros(len(hashes), np.bool_)
    places = np.flatnonzero(_may_be_among(hashes, others))
    candidates = others[_may_be_among(others, hashes)]
    found[places] = np.isin(hashes[places], candidates)
    return found


def _may_be_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    is_marked = np.zeros(_MARKS, np.bool_)
    is_marked[_low_bits(others)] = True
    return is_marked[_low_bits(hashes)]


def _low_bits(hashes: Hashes) -> npt.NDArray[np.uint16]:
    return hashes.astype(np.uint16)
