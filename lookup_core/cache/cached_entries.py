"""Entries of a cache: keys, rows and states by slot, and the S3-FIFO ghost queue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache import entry_states, row_store
from lookup_core.cache.cache_memory import CacheMemory, OwnMemory
from lookup_core.cache.cache_view import HASH, KEY, CacheView, stored_schema
from lookup_core.cache.entry_states import EntryStates
from lookup_core.cache.row_segments import RowQueue, stored_bytes
from lookup_core.cache.row_store import RowStore
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, SingleKey
from lookup_core.keys.key_index import ABSENT, KeyIndex, Slots

Mask = npt.NDArray[np.bool_]

_WAYS = 8  # keys per bucket
_NO_KEY = 0
_SPARSE = 8  # slots for each used one, from which on shrinking is worth its cost
_GHOST_BYTES = 2
_BYTES_BY_SLOT = entry_states.BYTES_BY_SLOT + row_store.BYTES_BY_SLOT + _GHOST_BYTES


class GhostKeys:
    """Fingerprints of the keys that were added last, in set-associative buckets."""

    def __init__(self) -> None:
        self.buckets = np.full((0, _WAYS), _NO_KEY, np.uint16)  # youngest first
        self._is_empty = True

    def resize(self, key_count: int) -> None:
        """Make room for `key_count` keys, a positive multiple of eight; forgets all keys."""
        self.buckets = np.full((key_count // _WAYS, _WAYS), _NO_KEY, np.uint16)
        self._is_empty = True

    def add_keys(self, hashes: Hashes) -> None:
        """Add keys, which replace the oldest ones."""
        buckets, fingerprints = self._locations(hashes)
        self._is_empty = self._is_empty and not buckets.size
        while buckets.size:
            _, turn = np.unique(buckets, return_index=True)  # one key per bucket and turn
            at = buckets[turn]
            self.buckets[at, 1:] = self.buckets[at, :-1]
            self.buckets[at, 0] = fingerprints[turn]
            buckets, fingerprints = np.delete(buckets, turn), np.delete(fingerprints, turn)

    def is_in(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the keys were added lately; false positives are possible."""
        if self._is_empty:
            return np.zeros(len(hashes), np.bool_)  # costs nothing until the cache is full
        buckets, fingerprints = self._locations(hashes)
        return (self.buckets[buckets] == fingerprints[:, None]).any(axis=1)

    def _locations(self, hashes: Hashes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint16]]:
        # Not the lowest bits, by which the index places keys.
        shares = (hashes >> np.uint64(16)) & np.uint64(2**32 - 1)
        buckets = (shares * np.uint64(len(self.buckets))) >> np.uint64(32)
        fingerprints = (hashes >> np.uint64(48)).astype(np.uint16)
        return buckets.astype(np.intp), np.maximum(fingerprints, _NO_KEY + 1)


@dataclass(frozen=True, slots=True)
class NewEntries:
    """New entries for one queue: the hashes of their keys, and the columns to store."""

    queue: RowQueue
    hashes: npt.NDArray[np.uint64]
    stored: pa.RecordBatch

    @property
    def bytes(self) -> int:
        """Memory that their rows need."""
        return stored_bytes(self.stored)


class CachedEntries:
    """The entries of one cache by slot; slots are valid until the next `add` or `shrink`."""

    def __init__(
        self,
        schema: DimensionSchema,
        unit_bytes: Mapping[RowQueue, int],
        *,
        life_s: float,
        memory: CacheMemory | None = None,
    ) -> None:
        self._memory = OwnMemory() if memory is None else memory
        stored = stored_schema(schema, is_shared=self._memory.is_shared)
        zeros = self._memory.zeros
        self.index = KeyIndex(zeros)
        self.rows = RowStore(stored, unit_bytes=unit_bytes, memory=self._memory)
        self.ghosts = GhostKeys()
        self.states = EntryStates(life_s, zeros)
        self._key_at = stored.get_field_index(KEY)
        self._published: CacheView | None = None
        self.slot_count = 0  # used or free
        self._resize()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def bytes(self) -> int:
        """Memory of everything: rows, keys, index, ghosts and slots."""
        return self.overhead_bytes + self.rows.row_bytes

    @property
    def overhead_bytes(self) -> int:
        """Memory of everything but rows and their keys."""
        return self.index.bytes + _BYTES_BY_SLOT * self.slot_count

    @property
    def least_bytes(self) -> int:
        """Memory of everything after a `shrink`."""
        index = self.index.least_bytes(len(self))
        slots = self.index.least_slots(len(self))
        return index + _BYTES_BY_SLOT * slots + self.rows.row_bytes

    @property
    def bytes_by_slot(self) -> float:
        """Memory of an entry besides its row and key."""
        return self.overhead_bytes / self.slot_count

    def growth_bytes(self, count: int, *, kept: int) -> int:
        """Additional memory of `count` new entries besides their rows, when `kept` others stay."""
        more_slots = self.index.more_slots(count, kept=kept)
        return _BYTES_BY_SLOT * more_slots + self.index.more_bytes(count, kept=kept)

    def find(self, keys: CanonicalKeys) -> Slots:
        """The slot of each key, ABSENT where there is none."""
        return self.own_view.find(keys)

    def find_one(self, key: SingleKey) -> int:
        """The slot of one key, ABSENT where there is none."""
        if key.part is None:
            return self.index.table.find_one(key.hash)

        def is_same_key(slot: int) -> bool:
            row = self.rows.row(slot)
            return bool(row.columns[self._key_at][row.at].as_py() == key.part)

        return self.index.table.find_one(key.hash, is_same_key)

    def sample(self, draws: npt.NDArray[np.float64]) -> CanonicalKeys:
        """The keys of random entries, one for each number in [0, 1), without duplicates."""
        used = np.flatnonzero(self.rows.is_used).astype(np.int32)
        slots = used[np.unique((draws * len(used)).astype(np.intp))] if len(used) else used
        hashes = self.index.hashes_of(slots)
        if self._key_at < 0:
            return CanonicalKeys(hashes, None)
        stored = self.rows.table.gather_slots(slots, [KEY])
        return CanonicalKeys(hashes[stored.order], stored.rows.column(0))

    def is_for_main(self, keys: CanonicalKeys, found: Slots) -> Mask:
        """Which keys belong into the main queue: those there already, and the ghosts."""
        is_for_main = self.ghosts.is_in(keys.hashes)
        if (here := np.flatnonzero(found != ABSENT)).size:
            is_for_main[here] |= self.rows.is_in(found[here], RowQueue.MAIN)
        return is_for_main

    def new_entries(self, keys: CanonicalKeys, queue: RowQueue, rows: pa.RecordBatch) -> NewEntries:
        """New entries with these keys and rows."""
        columns, names = rows.columns, rows.schema.names
        if keys.parts is not None:
            columns.insert(0, keys.parts)
            names.insert(0, KEY)
        if self._memory.is_shared:
            columns.insert(0, pa.array(keys.hashes))
            names.insert(0, HASH)
        stored = pa.record_batch(columns, names=names) if columns else rows
        return NewEntries(queue, keys.hashes, stored)

    def new_negatives(self, keys: CanonicalKeys) -> NewEntries:
        """New entries without rows."""
        rows = pa.record_batch([pa.nulls(keys.size)], names=["none"]).select([])
        return self.new_entries(keys, RowQueue.NEGATIVE, rows)

    def add(
        self, new: Sequence[NewEntries], *, read_at: float, settles_later: bool = False
    ) -> Slots:
        """Add entries with distinct keys that are not here; returns their slots in order."""
        slots = self.index.insert(np.concatenate([each.hashes for each in new]))
        self._resize()
        start = 0
        for each in new:
            own = slots[start : start + len(each.hashes)]
            self.states.begin(own, read_at=read_at, is_negative=each.queue is RowQueue.NEGATIVE)
            self.rows.add_rows(own, each.stored, each.queue, settles_later=settles_later)
            start += len(own)
        return slots

    def pieces(self) -> Iterator[NewEntries]:
        """All entries, to be added elsewhere; rows of segments without dead rows are not copied."""
        for queue, slots, stored in self.rows.pieces():
            yield NewEntries(queue, self.index.hashes_of(slots), stored)

    def forget(self, slots: Slots) -> int:
        """Remove the entries of slots, distinct but for ABSENT; returns their number."""
        slots = slots[slots != ABSENT]
        if len(slots):
            self.index.remove(slots)
            self.rows.remove_rows(slots)
        return len(slots)

    def shrink_if_sparse(self, *, coming: int = 0) -> None:
        """Shrink if few of many slots are used, with this many entries to come."""
        if self.slot_count >= _SPARSE * self.index.least_slots(len(self) + coming):
            self.shrink()

    def shrink(self) -> None:
        """Free unused slots, which renumbers the others; forgets the ghosts."""
        kept = self.index.shrink()
        slot_count = self.index.slot_count
        self.rows.renumber(kept, slot_count)
        self.states.renumber(kept, slot_count)
        self.ghosts.resize(slot_count)
        self.slot_count = slot_count

    def begin_move(self) -> None:
        """Store the arrays in the memory again; the rows follow by `rows.move_next`."""
        self.shrink()
        self.rows.begin_move()

    def end_move(self) -> None:
        """Let readers see all entries in the memory."""
        self._published = None
        self.publish()

    @property
    def own_view(self) -> CacheView:
        """All entries, until the next change of slots or segments."""
        return CacheView(self.index.table, self.states.table, self.rows.table)

    @property
    def view(self) -> CacheView:
        """The entries that readers see, until the next change of slots or segments."""
        return CacheView(self.index.table, self.states.table, self.rows.settled_table)

    def publish(self) -> None:
        """Let readers see all changes; a no-op if arrays and segments are the same."""
        if self._memory.is_shared and not self.view.is_same(self._published):
            self._published = self.view
            self._memory.publish(self._published)

    def check_invariants(self) -> None:
        """For tests: index, rows, states and ghosts have the same slots."""
        self.index.check_invariants()
        self.rows.check_invariants()
        assert self.slot_count == self.index.slot_count
        assert self.states.bytes == entry_states.BYTES_BY_SLOT * self.slot_count
        assert self.ghosts.buckets.nbytes == _GHOST_BYTES * self.slot_count
        used = self.index.used_slots()
        is_negative = self.rows.is_in(used, RowQueue.NEGATIVE)
        assert (
            self.states.table.is_negative(self.states.table.words_of(used)).tolist()
            == is_negative.tolist()
        )
        assert sum(queue.rows for queue in self.rows.queues.values()) == len(used)

    def _resize(self) -> None:
        slot_count = self.index.slot_count
        if slot_count == self.slot_count:
            return
        self.states.resize(slot_count)
        self.rows.resize(slot_count)
        self.ghosts.resize(slot_count)
        self.slot_count = slot_count
