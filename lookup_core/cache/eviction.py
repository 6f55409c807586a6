"""S3-FIFO eviction, on whole segments.

New rows enter a small queue. Rows that are looked up again there move to the main queue; the others
are evicted and leave a ghost. A key that returns while its ghost is remembered enters the main
queue directly. The main queue evicts its oldest rows without visits. A scan therefore displaces a
tenth of the cache only: see docs/decisions/010-s3-fifo-eviction.md.

After Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from lookup_core.cache.cached_entries import CachedEntries, NewEntries
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.row_segments import RowQueue
from lookup_core.keys.key_index import Slots
from lookup_core.statistics import EvictionReason

_SMALL_QUEUE_SHARE = 0.1  # each share is one of bytes
_NEGATIVE_BOUND_SHARE = 0.2
_ROOMY_BOUND_SHARE = 0.8  # above, evictions are near
_VISITS_TO_PROVE = 1
_MAX_STAYING_ROWS_SHARE = 0.75  # else one eviction could copy the whole main queue
_BEFORE_ALL_ENTRIES = -math.inf  # a time at which no entry has expired
# {queue: its segments, if it filled the bound}
_SEGMENTS = {RowQueue.SMALL: 80, RowQueue.MAIN: 16, RowQueue.NEGATIVE: 40}


def unit_bytes(max_bytes: int) -> Mapping[RowQueue, int]:
    """The size of segments in a full cache, of which one is evicted at a time."""
    return {queue: max_bytes // count for queue, count in _SEGMENTS.items()}


class Eviction:
    """Keeps the entries of one cache within a bound, and counts removals; `now` is monotonic."""

    def __init__(self, entries: CachedEntries, lifetimes: Lifetimes, max_bytes: int) -> None:
        self._entries = entries
        self._lifetimes = lifetimes
        self.max_bytes = max_bytes
        self.counts = dict.fromkeys(EvictionReason, 0)

    def forget(self, slots: Slots, reason: EvictionReason) -> int:
        """Remove the entries of slots, distinct but for ABSENT; returns their number."""
        count = self._entries.forget(slots)
        self.counts[reason] += count
        return count

    def fitting(self, new: NewEntries) -> NewEntries:
        """The last of these new rows, as many as fit the free room or the small queue.

        The others leave a ghost, as if all had entered one by one: a batch as large as the cache
        must not empty it.
        """
        entries, count = self._entries, len(new.hashes)
        free_bytes = self.max_bytes - entries.bytes - entries.growth_bytes(count, kept=len(entries))
        small_bytes = _SMALL_QUEUE_SHARE * (self.max_bytes - entries.overhead_bytes)
        kept = int(count * max(free_bytes, small_bytes, 0) / new.bytes)
        if kept >= count:
            return new
        passed = max(count - max(kept, 1), 0)
        entries.ghosts.add_keys(new.hashes[:passed])
        left = new.stored.take(pa.array(np.arange(passed, count)))
        return NewEntries(new.queue, new.hashes[passed:], left)

    def make_room(self, new: Sequence[NewEntries], now: float) -> bool:
        """Evict until the new entries fit; False, without evictions, if they never would."""
        entries = self._entries
        incoming_bytes = sum(each.bytes for each in new)
        count = sum(len(each.hashes) for each in new)
        entries.shrink_if_sparse(coming=count)
        room = self.max_bytes - incoming_bytes
        self._set_roominess()
        if entries.overhead_bytes + entries.growth_bytes(count, kept=0) > room:
            return False
        while entries.bytes + entries.growth_bytes(count, kept=len(entries)) > room:
            self._evict(now, EvictionReason.SIZE)
        return True

    def make_negative_room(self, new: NewEntries, now: float) -> bool:
        """Evict negative entries until the new ones fit their share; False if they never would."""
        incoming_bytes = new.bytes + len(new.hashes) * self._entries.bytes_by_slot
        room = _NEGATIVE_BOUND_SHARE * self.max_bytes - incoming_bytes
        if room < 0:
            return False
        while self._negative_bytes() > room:
            self._evict_negative(now, EvictionReason.SIZE)
        return True

    def set_max_bytes(self, max_bytes: int) -> None:
        """Set the bound, and evict down to it."""
        self.max_bytes = max_bytes
        entries = self._entries
        for queue, size in unit_bytes(max_bytes).items():
            entries.rows.queues[queue].unit_bytes = size
        self._set_roominess()
        while len(entries) and min(entries.bytes, entries.least_bytes) > max_bytes:
            self._evict(_BEFORE_ALL_ENTRIES, EvictionReason.PRESSURE)
        if entries.bytes > max_bytes:
            entries.shrink()

    def _set_roominess(self) -> None:
        entries = self._entries
        entries.rows.is_roomy = entries.bytes < _ROOMY_BOUND_SHARE * self.max_bytes

    def _evict(self, now: float, reason: EvictionReason) -> None:
        # Each call removes entries or shortens the small queue.
        queues = self._entries.rows.queues
        small_bytes, main_bytes = queues[RowQueue.SMALL].bytes, queues[RowQueue.MAIN].bytes
        if self._is_negative_due(now) or not small_bytes + main_bytes:
            self._evict_negative(now, reason)
        elif small_bytes > _SMALL_QUEUE_SHARE * (small_bytes + main_bytes):
            self._evict_small(now, reason)
        else:
            self._evict_main(now, reason)

    def _negative_bytes(self) -> float:
        queue = self._entries.rows.queues[RowQueue.NEGATIVE]
        return queue.bytes + queue.rows * self._entries.bytes_by_slot

    def _is_negative_due(self, now: float) -> bool:
        oldest = self._entries.rows.oldest_slots(RowQueue.NEGATIVE)
        if not len(oldest):
            return False
        is_too_much = self._negative_bytes() > _NEGATIVE_BOUND_SHARE * self.max_bytes
        return is_too_much or not len(self._still_of_use(oldest, now))

    def _evict_negative(self, now: float, reason: EvictionReason) -> None:
        self._entries.rows.split_oldest(RowQueue.NEGATIVE)
        oldest = self._entries.rows.oldest_slots(RowQueue.NEGATIVE)
        self.forget(self._without_expired(oldest, now), reason)

    def _evict_small(self, now: float, reason: EvictionReason) -> None:
        entries = self._entries
        states = entries.states.table
        entries.rows.split_oldest(RowQueue.SMALL)
        oldest = self._without_expired(entries.rows.oldest_slots(RowQueue.SMALL), now)
        is_proven = states.visits(states.words_of(oldest)) >= _VISITS_TO_PROVE
        entries.ghosts.add_keys(entries.index.hashes_of(oldest[~is_proven]))
        self.forget(oldest[~is_proven], reason)
        entries.rows.move_rows(oldest[is_proven], RowQueue.MAIN)
        entries.states.set_visits(oldest[is_proven], 0)

    def _evict_main(self, now: float, reason: EvictionReason) -> None:
        entries = self._entries
        entries.rows.split_oldest(RowQueue.MAIN)
        oldest = entries.rows.oldest_slots(RowQueue.MAIN)
        most = int(_MAX_STAYING_ROWS_SHARE * len(oldest))
        oldest = self._without_expired(oldest, now)
        visits = entries.states.table.visits(entries.states.table.words_of(oldest))
        by_visits = np.argsort(visits.astype(np.uint8), kind="stable")
        stays_from = max(np.searchsorted(visits[by_visits], 1), len(oldest) - most)
        going, staying = by_visits[:stays_from], by_visits[stays_from:]
        self.forget(oldest[going], reason)
        entries.states.set_visits(oldest[staying], visits[staying] - 1)
        entries.rows.move_rows(oldest[staying], RowQueue.MAIN)

    def _without_expired(self, slots: Slots, now: float) -> Slots:
        kept = self._still_of_use(slots, now)
        self.forget(np.setdiff1d(slots, kept, assume_unique=True), EvictionReason.EXPIRED)
        return kept

    def _still_of_use(self, slots: Slots, now: float) -> Slots:
        entries = self._entries
        states = entries.states.table
        words = states.words_of(slots)
        is_over = self._lifetimes.is_over(
            states.ages_s(words, now),
            entries.index.hashes_of(slots),
            states.is_negative(words),
        )
        return slots[~is_over]
