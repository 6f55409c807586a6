"""Rows and holes of a full table by key, with marks for reloads.

Without lifetimes, eviction and bound: `FullTable` decides what comes in.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_memory import CacheMemory
from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.eviction import unit_bytes
from lookup_core.cache.row_segments import RowQueue
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots

Mask = npt.NDArray[np.bool_]

_LIFE_S = 86_400.0  # ages are capped at a day: beyond, the age of the table counts
_MARKED = 1


class TableRows:
    """Entries of the main queue are rows, those of the queue for negative entries are holes.

    A marked entry stays at the end of a reload; new entries have no mark. The mark is stored in the
    visit count of a cache.
    """

    def __init__(
        self, schema: DimensionSchema, max_bytes: int, memory: CacheMemory | None = None
    ) -> None:
        """`memory` is this process's own by default."""
        self.entries = CachedEntries(schema, unit_bytes(max_bytes), life_s=_LIFE_S, memory=memory)
        self.entries.rows.is_roomy = True

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def bytes(self) -> int:
        """Memory of rows, keys, index and slots."""
        return self.entries.bytes

    @property
    def hole_count(self) -> int:
        """The number of holes."""
        return self.entries.rows.queues[RowQueue.NEGATIVE].rows

    def find(self, keys: CanonicalKeys) -> Slots:
        """The slot of each key, ABSENT where there is none."""
        return self.entries.find(keys)

    def is_hole(self, slots: Slots) -> Mask:
        """Which of these slots are holes; undefined for ABSENT."""
        return self.entries.states.table.is_negative(self.entries.states.table.of(slots))

    def newcomers(self, keys: CanonicalKeys, rows: pa.RecordBatch) -> Newcomers:
        """New entries with a row each; `rows` is no slice of a larger batch."""
        every = np.ones(keys.size, np.bool_)
        return self.entries.newcomers(keys, every, queue=RowQueue.MAIN, rows=rows)

    def holes(self, keys: CanonicalKeys) -> Newcomers:
        """New entries that are holes."""
        return self.entries.negative_newcomers(keys, np.ones(keys.size, np.bool_))

    def has_room(self, newcomers: Newcomers, max_bytes: int) -> bool:
        """Whether `add` would stay within this bound."""
        more_bytes = self.entries.growth_bytes(len(newcomers.hashes), kept=len(self))
        most_bytes = max_bytes - more_bytes - newcomers.bytes
        if self.bytes > most_bytes:
            self.entries.rows.compact()
        return self.bytes <= most_bytes

    def add(self, newcomers: Newcomers, *, read_at: float) -> Slots:
        """Add keys that are distinct and not here; returns their slots."""
        if not len(newcomers.hashes):
            return np.zeros(0, np.int32)
        return self.entries.add([newcomers], read_at=read_at)

    def forget(self, slots: Slots) -> None:
        """Remove entries; the slots are distinct but for ABSENT."""
        slots = slots[slots != ABSENT]
        if len(slots):
            self.entries.forget(slots)

    def forget_hashes(self, hashes: Hashes) -> None:
        """Remove all keys of these hashes."""
        while len(slots := np.unique(self.entries.index.find(hashes))) and slots[-1] != ABSENT:
            self.forget(slots)

    def mark(self, slots: Slots) -> None:
        """Mark entries."""
        self.entries.states.set_visits(slots, _MARKED)

    def unmark(self, slots: Slots) -> None:
        """Remove marks."""
        self.entries.states.set_visits(slots, 0)

    def is_marked(self, slots: Slots) -> Mask:
        """Which of these slots are marked; undefined for ABSENT."""
        return self.entries.states.table.visits(self.entries.states.table.of(slots)) == _MARKED

    def unmark_all(self) -> None:
        """Remove all marks."""
        self.unmark(self.entries.index.used_slots())

    def forget_unmarked(self) -> None:
        """Remove all entries without a mark."""
        used = self.entries.index.used_slots()
        self.forget(used[~self.is_marked(used)])

    def absorb(self, others: "TableRows", *, read_at: float) -> None:
        """Add the entries of another table, none of which is here; without copies."""
        for newcomers in others.entries.pieces():
            self.add(newcomers, read_at=read_at)

    def check_invariants(self) -> None:
        """For tests: the probation queue of S3-FIFO is empty."""
        self.entries.check_invariants()
        assert self.entries.rows.queues[RowQueue.SMALL].rows == 0
