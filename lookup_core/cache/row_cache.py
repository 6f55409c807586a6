"""The cache of one dimension: rows and known absences by key, in columns, bounded in bytes.

All work is on whole batches. Says what is known and whether it is fresh; who goes for want of room
is `eviction`'s business, who fetches what `flight_table`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.entry_states import Lifetimes, Words
from lookup_core.cache.eviction import Eviction, segment_bytes
from lookup_core.cache.row_store import Gathered, Place, StoredRow
from lookup_core.cache.segments import RowQueue
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.keys.single_keys import SingleKey
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Probe:
    """What the cache knows of n keys."""

    slots: Slots  # [n] for `rows`, meaningful where `is_row` or `is_stale`
    is_row: Mask  # [n] a fresh row is here
    is_missing: Mask  # [n] a fresh absence is here
    is_stale: Mask  # [n] a row is here whose time is over, but not yet its stay
    ages_s: npt.NDArray[np.float64]  # [n] meaningful where one of the three
    ttl_s: npt.NDArray[np.float64]  # [n] the age at which it expires


@dataclass(frozen=True, slots=True)
class Bookmark:
    """What leads back to a row that was a hit; holds nothing of the row."""

    place: Place
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A fresh row; the last of its columns are the dimension's."""

    row: StoredRow
    age_s: float
    bookmark: Bookmark


class RowCache:
    """Rows of one dimension; `now` is monotonic seconds throughout.

    A row stays for its time to live and as long as it may be served stale, an absence for its time
    to live only.
    """

    def __init__(self, schema: DimensionSchema, settings: CacheSettings) -> None:
        self._keeps_absences = settings.negative_ttl_s > 0
        self._lifetimes = Lifetimes(settings)
        self._entries = CachedEntries(
            schema, segment_bytes(settings.max_bytes), life_s=self._lifetimes.longest_s
        )
        self._eviction = Eviction(self._entries, self._lifetimes, settings.max_bytes)

    @property
    def bytes(self) -> int:
        """All that the cache holds: rows, keys, index and what is kept by slot."""
        return self._entries.bytes

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """What is known of the keys; counts as a visit of what is found."""
        probe, states = self._look(keys, now)
        is_visited = probe.is_row | probe.is_stale
        self._entries.states.visit(probe.slots[is_visited], states[is_visited])
        return probe

    def peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """What is known of the keys; leaves no trace."""
        probe, _ = self._look(keys, now)
        return probe

    def hit(self, key: SingleKey, now: float) -> Hit | None:
        """The fresh row of one key, which counts as a visit; None where there is none."""
        slot = self._entries.find_one(key)
        if slot == ABSENT:
            return None
        states = self._entries.states
        word = states.of_one(slot)
        age_s, ttl_s = states.age_s(word, now), self._lifetimes.row_ttl_s(key.hash)
        if not states.is_row(word) or age_s >= ttl_s:
            return None
        states.visit_one(slot, word)
        rows = self._entries.rows
        return Hit(rows.row(slot), age_s, Bookmark(rows.place(slot), ttl_s))

    def revisit(self, bookmark: Bookmark, now: float) -> float | None:
        """The age of the row that was a hit, if it would be one again, which counts as a visit.

        None if it is no longer fresh, or went, or was moved.
        """
        if not self._entries.rows.is_at(bookmark.place):
            return None
        states, slot = self._entries.states, bookmark.place.slot
        word = states.of_one(slot)
        age_s = states.age_s(word, now)
        if age_s >= bookmark.ttl_s:
            return None
        states.visit_one(slot, word)
        return age_s

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order they are stored."""
        return self._entries.rows.gather(slots, names)

    def fill(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        rows: pa.RecordBatch,
        read_at: float,
        now: float,
    ) -> None:
        """Keep rows (those of the keys that have one, in order) and the absence of the others.

        Ages count from `read_at`, the moment from which on the backend may have changed. The keys
        are distinct. What would not fit into an empty cache is not kept, and only what
        it replaces goes for it.
        """
        found = self._entries.find(keys)
        arrivals = self._arrivals(keys, has_row, rows=rows, found=found)
        absences = self._absences(keys, has_row)
        self._eviction.forget(found, EvictionReason.REPLACED)  # older, whether the new one fits
        arrivals = [
            self._eviction.passing(each) if each.queue is RowQueue.SMALL else each
            for each in arrivals
        ]
        if len(absences.hashes) and self._eviction.make_room_for_absences(absences, now):
            arrivals.append(absences)
        if arrivals and self._eviction.make_room(arrivals, now):
            self._entries.add(arrivals, read_at=read_at)

    def set_max_bytes(self, max_bytes: int) -> None:
        """Hold no more than this from now on, 0 for nothing; what is too much goes at once."""
        self._eviction.set_max_bytes(max_bytes)

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Forget the keys; returns how many were cached."""
        found = np.unique(self._entries.find(keys))
        return self._eviction.forget(found, EvictionReason.INVALIDATED)

    def apply(
        self, keys: CanonicalKeys, has_row: Mask, *, is_gone: Mask, rows: pa.RecordBatch, now: float
    ) -> int:
        """Apply changes by removing the keys; returns how many were cached.

        Their new rows are not kept: the next query reads them.
        """
        del has_row, is_gone, rows, now
        return self.invalidate(keys)

    def clear(self) -> int:
        """Forget all; returns how many keys were cached."""
        used = self._entries.index.used_slots()
        count = self._eviction.forget(used, EvictionReason.INVALIDATED)
        self._entries.shrink()
        return count

    def oldest_age_s(self, now: float) -> float | None:
        """The age of the oldest entry: no answer is staler than that; None if it is empty."""
        if not len(self._entries):
            return None
        return self._entries.states.oldest_age_s(self._entries.index.free_slots(), now)

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""
        return CacheStatistics(
            rows=len(self._entries),
            bytes=self.bytes,
            max_bytes=self._eviction.max_bytes,
            evictions=dict(self._eviction.counts),
        )

    def check_invariants(self) -> None:
        """For tests: all parts hold the same, within the bound or as little as can be."""
        entries = self._entries
        entries.check_invariants()
        is_least = not len(entries) and entries.bytes == entries.least_bytes
        assert entries.bytes <= self._eviction.max_bytes or is_least

    def _look(self, keys: CanonicalKeys, now: float) -> tuple[Probe, Words]:
        slots, states = self._entries.find(keys), self._entries.states
        words = states.of(slots)  # where a key is not found: of some other slot, masked below
        is_found, is_absence = slots != ABSENT, states.is_absence(words)
        ages_s = states.ages_s(words, now)
        ttl_s = self._lifetimes.ttl_s(keys.hashes, is_absence)
        is_fresh = is_found & (ages_s < ttl_s)
        probe = Probe(
            slots=slots,
            is_row=is_fresh & ~is_absence,
            is_missing=is_fresh & is_absence,
            is_stale=is_found & self._lifetimes.is_stale(ages_s, ttl_s, is_absence),
            ages_s=ages_s,
            ttl_s=ttl_s,
        )
        return probe, words

    def _arrivals(
        self, keys: CanonicalKeys, has_row: Mask, *, rows: pa.RecordBatch, found: Slots
    ) -> list[Newcomers]:
        is_proven = self._entries.is_proven(keys, found)
        queues = {RowQueue.SMALL: has_row & ~is_proven, RowQueue.MAIN: has_row & is_proven}
        return [
            # Taken, not filtered or sliced: a batch without columns would not be counted so.
            self._entries.newcomers(
                keys, which, queue=queue, rows=rows.take(pa.array(np.flatnonzero(which[has_row])))
            )
            for queue, which in queues.items()
            if which.any()
        ]

    def _absences(self, keys: CanonicalKeys, has_row: Mask) -> Newcomers:
        is_kept = ~has_row & self._keeps_absences
        rows = pa.record_batch([pa.nulls(int(is_kept.sum()))], names=["none"]).select([])
        return self._entries.newcomers(keys, is_kept, queue=RowQueue.ABSENT, rows=rows)
