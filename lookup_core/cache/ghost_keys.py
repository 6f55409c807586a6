"""Keys whose rows went unasked for, remembered by fingerprint: who comes back is worth keeping.

The ghost queue of S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak: SOSP 2023), as buckets of a few keys,
each first in, first out. May take a stranger for a ghost, once in some thousand keys, and forget a
ghost early: both cost a place in the cache, never a wrong answer.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes

BYTES_BY_KEY = 2

_WAYS = 8  # keys of a bucket
_NO_KEY = 0


class GhostKeys:
    """The last keys that were added, about as many as there is room for."""

    def __init__(self) -> None:
        self._buckets = np.full((0, _WAYS), _NO_KEY, np.uint16)  # youngest first
        self._is_empty = True

    @property
    def bytes(self) -> int:
        """What the ghosts hold in memory."""
        return self._buckets.nbytes

    def resize(self, key_count: int) -> None:
        """Have room for so many keys, a multiple of eight and at least that; forgets all."""
        self._buckets = np.full((key_count // _WAYS, _WAYS), _NO_KEY, np.uint16)
        self._is_empty = True

    def add(self, hashes: Hashes) -> None:
        """Remember keys in the place of the oldest ones."""
        buckets, fingerprints = self._places(hashes)
        self._is_empty = self._is_empty and not buckets.size
        while buckets.size:
            _, turn = np.unique(buckets, return_index=True)  # a bucket takes one at a time
            at = buckets[turn]
            self._buckets[at, 1:] = self._buckets[at, :-1]
            self._buckets[at, 0] = fingerprints[turn]
            buckets, fingerprints = np.delete(buckets, turn), np.delete(fingerprints, turn)

    def is_in(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the keys are remembered."""
        if self._is_empty:
            return np.zeros(len(hashes), np.bool_)  # a cache that is not full yet pays nothing
        buckets, fingerprints = self._places(hashes)
        return (self._buckets[buckets] == fingerprints[:, None]).any(axis=1)

    def _places(self, hashes: Hashes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint16]]:
        # Not the lowest bits: keys that are neighbours in the index need not be so here.
        shares = (hashes >> np.uint64(16)) & np.uint64(2**32 - 1)  # of 2**32
        buckets = (shares * np.uint64(len(self._buckets))) >> np.uint64(32)
        fingerprints = (hashes >> np.uint64(48)).astype(np.uint16)
        return buckets.astype(np.intp), np.maximum(fingerprints, _NO_KEY + 1)
