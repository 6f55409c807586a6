"""Row cache of one dimension: rows and negative entries by key, bounded in bytes.

Looks up, stores and removes entries; `entry_states` decides their TTL, `eviction` frees room.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_memory import CacheMemory
from lookup_core.cache.cache_view import NO_VIEW, Gathered
from lookup_core.cache.cached_entries import CachedEntries, NewEntries
from lookup_core.cache.dimension_cache import Hit, Probe
from lookup_core.cache.entry_states import Lifetimes, Words
from lookup_core.cache.eviction import Eviction, unit_bytes
from lookup_core.cache.row_segments import RowQueue
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, SingleKey
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason

Mask = npt.NDArray[np.bool_]

_SETTLE_S = 0.1


class RowCache:
    """Rows and negative entries of one dimension; `now` is monotonic seconds throughout.

    A row stays for its time to live and the time of stale service, a negative entry for its time to
    live only.
    """

    takes_changed_rows = False
    is_whole = False

    def __init__(
        self, schema: DimensionSchema, settings: CacheSettings, memory: CacheMemory | None = None
    ) -> None:
        """`memory` is this process's own by default."""
        self._keeps_negative = settings.negative_ttl_s > 0
        self._lifetimes = Lifetimes(settings)
        self.entries = CachedEntries(
            schema,
            unit_bytes(settings.max_bytes),
            life_s=self._lifetimes.longest_s,
            memory=memory,
        )
        self._view = self.entries.own_view
        self.entries.publish()
        self._settle_at: float | None = None  # when `settle` is due
        self._is_filling = False  # since the last `settle`
        self._eviction = Eviction(self.entries, self._lifetimes, settings.max_bytes)

    @property
    def bytes(self) -> int:
        """Memory of rows, keys, index and slots."""
        return self.entries.bytes

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """The entries of the keys; counts as a visit of their rows."""
        probe, words = self._look(keys, now)
        is_visited = probe.is_row | probe.is_stale
        if np.count_nonzero(is_visited) == keys.size:
            self._view.states.count_visits(probe.slots, words)
        else:
            self._view.states.count_visits(probe.slots[is_visited], words[is_visited])
        return probe

    def peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """The entries of the keys; counts as no visit."""
        probe, _ = self._look(keys, now)
        return probe

    def hit(self, key: SingleKey, now: float) -> Hit | None:
        """The fresh row of one key, if there is one; counts as a visit."""
        slot = self.entries.find_one(key)
        if slot == ABSENT:
            return None
        ttl_s = self._lifetimes.row_ttl_s(key.hash)
        age_s = self._view.states.visited_row_age_s(slot, now, ttl_s)
        return None if age_s is None else Hit(self.entries.rows.row(slot), age_s)

    def visit(self, slots: Slots) -> None:
        """Count a visit of each of these slots, as readers report them; others are ignored."""
        slots = slots[(slots >= 0) & (slots < self.entries.slot_count)]
        self._view.states.count_visits(slots, self._view.states.words_of(slots))

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order of their storage."""
        return self._view.rows.gather_slots(slots, names)

    def fill(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        rows: pa.RecordBatch,
        read_at: float,
        now: float,
        settles_later: bool = True,
    ) -> None:
        """Cache the rows of the distinct keys that have one, in order, and the others as negative.

        Ages count from `read_at`: the rows may have changed from then on. Entries that would not
        fit an empty cache are not cached; they only remove the former entries of their keys.
        With `settles_later`, readers in other processes may see the entries after `settle` only.
        """
        with self._changing():
            found = self.entries.find(keys)
            arrivals = self._arrivals(keys, has_row, rows=rows, found=found)
            missing = np.flatnonzero(~has_row & self._keeps_negative)
            self._eviction.forget(found, EvictionReason.REPLACED)  # even if the new ones do not fit
            arrivals = [
                self._eviction.fitting(each) if each.queue is RowQueue.SMALL else each
                for each in arrivals
            ]
            if missing.size:
                negative = self.entries.new_negatives(keys.take(missing.astype(np.int32)))
                if self._eviction.make_negative_room(negative, now):
                    arrivals.append(negative)
            if arrivals and self._eviction.make_room(arrivals, now):
                self.entries.add(arrivals, read_at=read_at, settles_later=settles_later)
        if settles_later:
            self._is_filling = True
            if self._settle_at is None:
                self._settle_at = now + _SETTLE_S

    def settle(self, now: float) -> float | None:
        """Let readers see all entries, if that is due; returns the next time.

        The last time, when no more entries have come, they are merged into few segments.
        """
        if self._settle_at is not None and self._settle_at <= now:
            with self._changing():
                self.entries.rows.settle(is_quiet=not self._is_filling)
            self._settle_at = now + _SETTLE_S if self._is_filling else None
            self._is_filling = False
        return self._settle_at

    def apply(self, keys: CanonicalKeys, changes: RowChanges, now: float) -> int:
        """Remove the rows of changed keys, which the next query reads; returns their number."""
        del changes, now
        return self.invalidate(keys)

    def confirm(self, reported_until: float) -> None:
        """Rows age from their queries on, whatever is reported."""

    def begin_move(self) -> None:
        """Store the arrays in the memory again; the rows follow."""
        self.entries.begin_move()
        self._view = self.entries.own_view

    def move_next(self) -> bool:
        """Store some rows in the memory again; false once all are stored."""
        has_moved = self.entries.rows.move_next()
        self._view = self.entries.own_view
        return has_moved

    def end_move(self) -> None:
        """Let readers use the cache."""
        self.entries.end_move()
        self._view = self.entries.own_view

    def set_max_bytes(self, max_bytes: int) -> None:
        """Set the bound, 0 for no entries, and evict down to it."""
        with self._changing():
            self._eviction.set_max_bytes(max_bytes)

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Remove the keys; returns how many were cached."""
        with self._changing():
            found = np.unique(self.entries.find(keys))
            return self._eviction.forget(found, EvictionReason.INVALIDATED)

    def clear(self) -> int:
        """Remove all entries; returns their number."""
        with self._changing():
            used = self.entries.index.used_slots()
            count = self._eviction.forget(used, EvictionReason.INVALIDATED)
            self.entries.shrink()
            return count

    def oldest_age_s(self, now: float) -> float | None:
        """The age of the oldest entry, the maximal staleness of an answer; None if it is empty."""
        if not len(self.entries):
            return None
        return self.entries.states.oldest_age_s(self.entries.rows.is_used, now)

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""
        return CacheStatistics(
            rows=len(self.entries),
            bytes=self.bytes,
            max_bytes=self._eviction.max_bytes,
            evictions=dict(self._eviction.counts),
        )

    def check_invariants(self) -> None:
        """For tests: the parts agree; memory is within the bound, or minimal."""
        entries = self.entries
        entries.check_invariants()
        is_least = not len(entries) and entries.bytes == entries.least_bytes
        assert entries.bytes <= self._eviction.max_bytes or is_least

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let lookups and readers see the changes at the end.

        Until then there is no view, as it would keep the memory of rows that are dropped.
        """
        self._view = NO_VIEW
        try:
            yield
        finally:
            self._view = self.entries.own_view
            self.entries.publish()

    def _look(self, keys: CanonicalKeys, now: float) -> tuple[Probe, Words]:
        slots, states = self._view.find(keys), self._view.states
        words = states.words_of(slots)  # any slot where a key is not found; masked below
        is_found, is_negative = slots != ABSENT, states.is_negative(words)
        ages_s = states.ages_s(words, now)
        ttl_s = self._lifetimes.ttl_s(keys.hashes, is_negative)
        is_fresh = is_found & (ages_s < ttl_s)
        probe = Probe(
            slots=slots,
            is_row=is_fresh & ~is_negative,
            is_missing=is_fresh & is_negative,
            is_stale=is_found & self._lifetimes.is_stale(ages_s, ttl_s, is_negative),
            ages_s=ages_s,
            ttl_s=ttl_s,
        )
        return probe, words

    def _arrivals(
        self, keys: CanonicalKeys, has_row: Mask, *, rows: pa.RecordBatch, found: Slots
    ) -> list[NewEntries]:
        is_for_main = self.entries.is_for_main(keys, found)
        queues = {RowQueue.SMALL: has_row & ~is_for_main, RowQueue.MAIN: has_row & is_for_main}
        return [
            # `take` keeps the row count of a batch without columns; filters and slices do not.
            self.entries.new_entries(
                keys.take(np.flatnonzero(which).astype(np.int32)),
                queue,
                rows.take(pa.array(np.flatnonzero(which[has_row]))),
            )
            for queue, which in queues.items()
            if which.any()
        ]
