"""Who goes when the cache wants room: S3-FIFO, on whole segments.

New rows stand in a small queue until they were asked for again; the others leave a ghost, and who
comes back while it is remembered is let into the main queue at once. There the oldest rows go, but
for those that were asked for. So keys that are asked for once, however many, pass through a tenth
of the cache and never reach the rest. See docs/decisions/010-s3-fifo-eviction.md.

After Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.segments import RowQueue
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.statistics import EvictionReason

_SMALL_SHARE = 0.1  # of the rows' bytes
_ABSENT_SHARE = 0.2  # of the bound
_VISITS_TO_PROVE = 1
_MOST_STAY = 0.75  # of a segment: else all of the main queue would be copied to find a victim
_NOTHING_IS_OVER = -math.inf  # a now before all entries
_SPARSE = 8  # so many slots for each that is used are worth to be given back
_SEGMENTS = {RowQueue.SMALL: 80, RowQueue.MAIN: 16, RowQueue.ABSENT: 40}  # {queue: of the bound}


def segment_bytes(max_bytes: int) -> Mapping[RowQueue, int]:
    """How large segments become, of which one goes at a time."""
    return {queue: max_bytes // count for queue, count in _SEGMENTS.items()}


class Eviction:
    """Keeps the entries of one cache within a bound, and counts what goes."""

    def __init__(self, entries: CachedEntries, lifetimes: Lifetimes, max_bytes: int) -> None:
        self._entries = entries
        self._lifetimes = lifetimes
        self.max_bytes = max_bytes
        self.counts = dict.fromkeys(EvictionReason, 0)

    def forget(self, slots: Slots, reason: EvictionReason) -> int:
        """Let these go, each named once, but for those that are ABSENT; returns how many."""
        slots = slots[slots != ABSENT]
        if len(slots):
            self._entries.forget(slots)
            self.counts[reason] += len(slots)
        return len(slots)

    def passing(self, newcomers: Newcomers) -> Newcomers:
        """Those of new rows that are still here when all have passed through the small queue.

        The others leave their ghosts, as if they had come one by one: a batch that is as large as
        the cache must not empty it.
        """
        entries, count = self._entries, len(newcomers.hashes)
        free_bytes = self.max_bytes - entries.bytes - entries.growth_bytes(count, kept=len(entries))
        small_bytes = _SMALL_SHARE * (self.max_bytes - entries.overhead_bytes)
        kept = int(count * max(free_bytes, small_bytes, 0) / newcomers.bytes)
        if kept >= count:
            return newcomers
        passed = max(count - max(kept, 1), 0)
        entries.ghosts.add(newcomers.hashes[:passed])
        return newcomers.without_first(passed)

    def make_room(self, newcomers: Sequence[Newcomers], now: float) -> bool:
        """Whether there is room for them now.

        Nothing goes for what would not fit into an empty cache.
        """
        entries = self._entries
        incoming_bytes = sum(each.bytes for each in newcomers)
        count = sum(len(each.hashes) for each in newcomers)
        if entries.slot_count >= _SPARSE * entries.index.least_slots(len(entries) + count):
            entries.shrink()
        room = self.max_bytes - incoming_bytes
        if entries.overhead_bytes + entries.growth_bytes(count, kept=0) > room:
            return False
        while entries.bytes + entries.growth_bytes(count, kept=len(entries)) > room:
            self._evict(now, EvictionReason.SIZE)
        return True

    def make_room_for_absences(self, newcomers: Newcomers, now: float) -> bool:
        """The same for absences, within their share of the bound."""
        incoming_bytes = newcomers.bytes + len(newcomers.hashes) * self._entries.bytes_by_slot
        room = _ABSENT_SHARE * self.max_bytes - incoming_bytes
        if room < 0:
            return False
        while self._absence_bytes() > room:
            self._evict_absences(now, EvictionReason.SIZE)
        return True

    def set_max_bytes(self, max_bytes: int) -> None:
        """Keep to another bound from now on."""
        self.max_bytes = max_bytes
        entries = self._entries
        entries.rows.set_max_segment_bytes(segment_bytes(max_bytes))
        while len(entries) and min(entries.bytes, entries.least_bytes) > max_bytes:
            self._evict(_NOTHING_IS_OVER, EvictionReason.PRESSURE)
        if entries.bytes > max_bytes:
            entries.shrink()

    def _evict(self, now: float, reason: EvictionReason) -> None:
        # Each round lets entries go, or makes the small queue shorter.
        rows = self._entries.rows
        small_bytes = rows.queue_bytes(RowQueue.SMALL)
        main_bytes = rows.queue_bytes(RowQueue.MAIN)
        if self._are_absences_due(now) or not small_bytes + main_bytes:
            self._evict_absences(now, reason)
        elif small_bytes > _SMALL_SHARE * (small_bytes + main_bytes):
            self._evict_small(now, reason)
        else:
            self._evict_main(now, reason)

    def _absence_bytes(self) -> float:
        rows = self._entries.rows
        count = rows.queue_rows(RowQueue.ABSENT)
        return rows.queue_bytes(RowQueue.ABSENT) + count * self._entries.bytes_by_slot

    def _are_absences_due(self, now: float) -> bool:
        oldest = self._entries.rows.oldest_slots(RowQueue.ABSENT)
        if not len(oldest):
            return False
        is_too_much = self._absence_bytes() > _ABSENT_SHARE * self.max_bytes
        return is_too_much or not len(self._still_of_use(oldest, now))

    def _evict_absences(self, now: float, reason: EvictionReason) -> None:
        oldest = self._entries.rows.oldest_slots(RowQueue.ABSENT)
        self.forget(self._without_expired(oldest, now), reason)

    def _evict_small(self, now: float, reason: EvictionReason) -> None:
        entries = self._entries
        oldest = self._without_expired(entries.rows.oldest_slots(RowQueue.SMALL), now)
        is_proven = entries.states.visits(entries.states.of(oldest)) >= _VISITS_TO_PROVE
        entries.ghosts.add(entries.index.hashes_of(oldest[~is_proven]))
        self.forget(oldest[~is_proven], reason)
        entries.rows.move(oldest[is_proven], RowQueue.MAIN)
        entries.states.set_visits(oldest[is_proven], 0)

    def _evict_main(self, now: float, reason: EvictionReason) -> None:
        entries = self._entries
        oldest = entries.rows.oldest_slots(RowQueue.MAIN)
        most = int(_MOST_STAY * len(oldest))
        oldest = self._without_expired(oldest, now)
        visits = entries.states.visits(entries.states.of(oldest))
        by_visits = np.argsort(visits.astype(np.uint8), kind="stable")
        stays_from = max(np.searchsorted(visits[by_visits], 1), len(oldest) - most)
        going, staying = by_visits[:stays_from], by_visits[stays_from:]
        self.forget(oldest[going], reason)
        entries.states.set_visits(oldest[staying], visits[staying] - 1)
        entries.rows.move(oldest[staying], RowQueue.MAIN)

    def _without_expired(self, slots: Slots, now: float) -> Slots:
        kept = self._still_of_use(slots, now)
        self.forget(np.setdiff1d(slots, kept, assume_unique=True), EvictionReason.EXPIRED)
        return kept

    def _still_of_use(self, slots: Slots, now: float) -> Slots:
        entries = self._entries
        states = entries.states.of(slots)
        is_over = self._lifetimes.is_over(
            entries.states.ages_s(states, now),
            entries.index.hashes_of(slots),
            entries.states.is_absence(states),
        )
        return slots[~is_over]
