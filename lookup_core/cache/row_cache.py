"""The cache of one dimension: rows and known absences by key, in columns, bounded in bytes.

All work is on whole batches. Eviction takes the oldest segment of rows and gives those that were
asked for since they came in a second chance (CLOCK, at the grain of segments). Entries expire at
age >= their time to live. Knows nothing of flights: who fetches what is `flight_table`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.cache import row_store
from lookup_core.cache.row_store import Gathered, RowStore
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, has_number_keys
from lookup_core.keys.key_index import ABSENT, KeyIndex, Slots
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason

_KEY = "\0key"  # no column of a dimension has a name with a NUL
_SEGMENTS = 16  # of which one goes at a time
_BYTES_BY_SLOT = 8 + 1 + 1  # read_at, is_negative, is_visited

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Probe:
    """What the cache knows of n keys."""

    slots: Slots  # [n] for `rows`, meaningful where `is_row`
    is_row: Mask  # [n] a fresh row is here
    is_missing: Mask  # [n] a fresh absence is here
    is_stale: Mask  # [n] a row is here whose time is over, but not yet its stay
    ages_s: npt.NDArray[np.float64]  # [n] meaningful where one of the two
    ttl_s: npt.NDArray[np.float64]  # [n] the age at which it expires


class RowCache:
    """Rows of one dimension; `now` is monotonic seconds throughout."""

    def __init__(self, schema: DimensionSchema, settings: CacheSettings) -> None:
        self._settings = settings
        stored = list(schema.columns)
        # A key that is its own hash is not stored again, but a batch needs one column at least.
        self._stores_key = not has_number_keys(schema) or not stored
        if self._stores_key:
            stored.insert(0, pa.field(_KEY, pa.binary()))
        self._index = KeyIndex()
        segment_bytes = max(settings.max_bytes // _SEGMENTS, 1)
        self._rows = RowStore(pa.schema(stored), max_segment_bytes=segment_bytes)
        self._read_at = np.zeros(0, np.float64)  # by slot
        self._is_negative = np.zeros(0, np.bool_)  # by slot
        self._is_visited = np.zeros(0, np.bool_)  # by slot
        self._evictions = dict.fromkeys(EvictionReason, 0)
        self._resize()

    @property
    def bytes(self) -> int:
        """All that the cache holds: rows, keys, index and what is kept by slot."""
        return self._index.bytes + self._rows.bytes + _BYTES_BY_SLOT * len(self._read_at)

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """What is known of the keys; counts as a visit of what is found."""
        probe = self.peek(keys, now)
        self._is_visited[probe.slots[probe.is_row | probe.is_missing]] = True
        return probe

    def peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """What is known of the keys; leaves no trace."""
        slots = self._find(keys)
        is_found = slots != ABSENT
        slots = np.where(is_found, slots, 0)  # slot 0 always exists; masked below
        is_negative = self._is_negative[slots]
        ages_s = now - self._read_at[slots]
        ttl_s = self._ttl_s(is_negative)
        is_fresh = is_found & (ages_s < ttl_s)
        stay_s = max(self._settings.stale_while_revalidate_s, self._settings.stale_if_error_s)
        is_stale = is_found & ~is_fresh & ~is_negative & (ages_s < ttl_s + stay_s)
        is_row, is_missing = is_fresh & ~is_negative, is_fresh & is_negative
        return Probe(slots, is_row, is_missing, is_stale, ages_s, ttl_s)

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order they are stored."""
        return self._rows.gather(slots, names)

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
        if self._settings.negative_ttl_s <= 0:
            keys, has_row = keys.take(np.flatnonzero(has_row).astype(np.int32)), has_row[has_row]
        stored = self._stored_rows(keys, has_row, rows)
        self._forget(self._find(keys), EvictionReason.REPLACED)  # older, whether the new one fits
        if not keys.size or not self._make_room(stored, now):
            return
        slots = self._index.insert(keys.hashes)
        self._resize()
        self._read_at[slots] = read_at
        self._is_negative[slots] = ~has_row
        self._is_visited[slots] = False
        self._rows.put(slots, stored)

    def set_max_bytes(self, max_bytes: int) -> None:
        """TEMPORARY until the cache's own."""
        if max_bytes == 0:
            self.clear()

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Forget the keys; returns how many were cached."""
        found = np.unique(self._find(keys))
        return self._forget(found, EvictionReason.INVALIDATED)

    def clear(self) -> int:
        """Forget all; returns how many keys were cached."""
        return self._forget(self._index.used_slots(), EvictionReason.INVALIDATED)

    def oldest_age_s(self, now: float) -> float:
        """The age of the oldest entry, an upper bound of how stale an answer can be; 0 if empty."""
        used = self._index.used_slots()
        return float(now - self._read_at[used].min()) if len(used) else 0.0

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""
        return CacheStatistics(
            rows=len(self._index),
            bytes=self.bytes,
            max_bytes=self._settings.max_bytes,
            evictions=dict(self._evictions),
        )

    def check_invariants(self) -> None:
        """For tests: index and rows hold the same slots, within the bound."""
        self._index.check_invariants()
        self._rows.check_invariants()
        assert self.bytes <= self._settings.max_bytes or not len(self._index)

    def _ttl_s(self, is_negative: Mask) -> npt.NDArray[np.float64]:
        return np.where(is_negative, self._settings.negative_ttl_s, self._settings.ttl_s)

    def _find(self, keys: CanonicalKeys) -> Slots:
        if keys.parts is None:
            return self._index.find(keys.hashes)
        parts = keys.parts

        def is_same_key(slots: Slots, positions: npt.NDArray[np.intp]) -> Mask:
            stored = self._rows.gather(slots, [_KEY])
            asked = parts.take(pa.array(positions[stored.order]))
            is_same = np.zeros(len(slots), np.bool_)
            equal = pc.equal(stored.rows.column(0), asked)
            is_same[stored.order] = equal.to_numpy(zero_copy_only=False)
            return is_same

        return self._index.find(keys.hashes, is_same_key)

    def _stored_rows(
        self, keys: CanonicalKeys, has_row: Mask, rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        numbers = np.cumsum(has_row) - 1
        columns = rows.take(pa.array(numbers, mask=~has_row)).columns
        if self._stores_key:
            parts = pa.nulls(keys.size, pa.binary()) if keys.parts is None else keys.parts
            columns.insert(0, parts)
        return pa.record_batch(columns, schema=self._rows.schema)

    def _forget(self, slots: Slots, reason: EvictionReason) -> int:
        slots = slots[slots != ABSENT]
        self._index.remove(slots)
        self._rows.remove(slots)
        self._evictions[reason] += len(slots)
        return len(slots)

    def _make_room(self, incoming: pa.RecordBatch, now: float) -> bool:
        incoming_bytes = row_store.stored_bytes(incoming)
        room = self._settings.max_bytes - incoming_bytes
        overhead = self.bytes - self._rows.row_bytes
        if overhead + self._growth_bytes(incoming.num_rows, kept=0) > room:
            return False
        # Each round drops rows or takes second chances away, at last from all.
        while self.bytes + self._growth_bytes(incoming.num_rows, kept=len(self._index)) > room:
            self._evict_oldest(now)
        return True

    def _growth_bytes(self, count: int, *, kept: int) -> int:
        by_slot = _BYTES_BY_SLOT + row_store.BYTES_BY_SLOT
        more_slots = self._index.more_slots(count, kept=kept)
        return by_slot * more_slots + self._index.more_bytes(count, kept=kept)

    def _evict_oldest(self, now: float) -> None:
        slots = self._rows.oldest_slots()
        is_fresh = now - self._read_at[slots] < self._ttl_s(self._is_negative[slots])
        stays = is_fresh & self._is_visited[slots]
        self._forget(slots[~is_fresh], EvictionReason.EXPIRED)
        self._forget(slots[is_fresh & ~stays], EvictionReason.SIZE)
        self._give_second_chance(slots[stays])

    def _give_second_chance(self, slots: Slots) -> None:
        kept = self._rows.gather(slots, self._rows.schema.names)
        self._rows.remove(slots)
        self._rows.put(slots[kept.order], kept.rows)
        self._is_visited[slots] = False

    def _resize(self) -> None:
        more = self._index.slot_count - len(self._read_at)
        if not more:
            return  # no copies of what is as long as the index
        self._read_at = np.concatenate((self._read_at, np.zeros(more, np.float64)))
        self._is_negative = np.concatenate((self._is_negative, np.zeros(more, np.bool_)))
        self._is_visited = np.concatenate((self._is_visited, np.zeros(more, np.bool_)))
        self._rows.resize(self._index.slot_count)
