"""How long an entry is fresh, and how long it stays.

Pure arithmetic on ages. Each entry's time to live is shorter by its own share of the jitter, so
that what was read together is not read anew together; the share comes from the key's hash.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.settings import CacheSettings

Mask = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]

_SHARE_BITS = 24


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Of the entries of one cache."""

    settings: CacheSettings

    @property
    def _stay_s(self) -> float:
        # Beyond the time to live, of a row that may be served stale. Never of an absence: its row
        # may have come since.
        return max(self.settings.stale_while_revalidate_s, self.settings.stale_if_error_s)

    @property
    def longest_s(self) -> float:
        """The greatest age at which an entry may be of use."""
        return max(self.settings.ttl_s + self._stay_s, self.settings.negative_ttl_s)

    def ttl_s(self, hashes: Hashes, is_negative: Mask) -> Seconds:
        """The age at which each entry is no longer fresh."""
        ttl_s = np.where(is_negative, self.settings.negative_ttl_s, self.settings.ttl_s)
        if not self.settings.ttl_jitter:
            return ttl_s
        shares = (hashes >> np.uint64(64 - _SHARE_BITS)) * (0.5**_SHARE_BITS)  # in [0, 1)
        return ttl_s * (1 - self.settings.ttl_jitter * shares)

    def row_ttl_s(self, key_hash: int) -> float:
        """The same of one row."""
        share = (key_hash >> (64 - _SHARE_BITS)) * 0.5**_SHARE_BITS
        return self.settings.ttl_s * (1 - self.settings.ttl_jitter * share)

    def is_stale(self, ages_s: Seconds, ttl_s: Seconds, is_negative: Mask) -> Mask:
        """Which entries are no longer fresh but stay yet."""
        if not self._stay_s:
            return np.zeros(len(ages_s), np.bool_)
        return ~is_negative & (ages_s >= ttl_s) & (ages_s < ttl_s + self._stay_s)

    def is_over(self, ages_s: Seconds, hashes: Hashes, is_negative: Mask) -> Mask:
        """Which entries are of no use any more."""
        ttl_s = self.ttl_s(hashes, is_negative)
        return (ages_s >= ttl_s) & ~self.is_stale(ages_s, ttl_s, is_negative)
