"""The broken twin of the cache's eviction: whoever came first goes first, asked for or not.

The test that scans are resisted must fail with it.
"""

from lookup_core.cache.eviction import Eviction
from lookup_core.cache.segments import RowQueue
from lookup_core.statistics import EvictionReason


class NaiveEviction(Eviction):
    """Plain FIFO on segments: no second chance, and no main queue."""

    def _evict_small(self, now: float, reason: EvictionReason) -> None:
        oldest = self._entries.rows.oldest_slots(RowQueue.SMALL)
        self.forget(self._without_expired(oldest, now), reason)
