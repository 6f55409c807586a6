"""Rows and holes of a full table by key, with marks for reloads.

Without lifetimes, eviction and bound: `FullTable` decides what comes in.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_memory import CacheMemory
from lookup_core.cache.cached_entries import CachedEntries, NewEntries
from lookup_core.cache.eviction import unit_bytes
from lookup_core.cache.row_segments import RowQueue
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots

Mask = npt.NDArray[np.bool_]

_LIFE_S = 86_400.0  # ages are capped at a day: beyond, the age of the table counts
_MARKED = 1


class TableRows(CachedEntries):
    """Entries of the main queue are rows, those of the queue for negative entries are holes.

    A marked entry stays at the end of a reload; new entries have no mark. The mark is stored in the
    visit count of a cache.
    """

    def __init__(
        self, schema: DimensionSchema, max_bytes: int, memory: CacheMemory | None = None
    ) -> None:
        """`memory` is this process's own by default."""
        super().__init__(schema, unit_bytes(max_bytes), life_s=_LIFE_S, memory=memory)
        self.rows.is_roomy = True

    @property
    def hole_count(self) -> int:
        """The number of holes."""
        return self.rows.queues[RowQueue.NEGATIVE].rows

    def is_hole(self, slots: Slots) -> Mask:
        """Which of these slots are holes; undefined for ABSENT."""
        return self.states.table.is_negative(self.states.table.words_of(slots))

    def new_rows(self, keys: CanonicalKeys, rows: pa.RecordBatch) -> NewEntries:
        """New entries with a row each; `rows` is no slice of a larger batch."""
        return self.new_entries(keys, RowQueue.MAIN, rows)

    def has_room(self, new: NewEntries, max_bytes: int) -> bool:
        """Whether `add` would stay within this bound."""
        more_bytes = self.growth_bytes(len(new.hashes), kept=len(self))
        most_bytes = max_bytes - more_bytes - new.bytes
        if self.bytes > most_bytes:
            self.rows.compact()
        return self.bytes <= most_bytes

    def forget_hashes(self, hashes: Hashes) -> None:
        """Remove all keys of these hashes."""
        while len(slots := np.unique(self.index.table.find(hashes))) and slots[-1] != ABSENT:
            self.forget(slots)

    def mark(self, slots: Slots) -> None:
        """Mark entries."""
        self.states.set_visits(slots, _MARKED)

    def unmark(self, slots: Slots) -> None:
        """Remove marks."""
        self.states.set_visits(slots, 0)

    def is_marked(self, slots: Slots) -> Mask:
        """Which of these slots are marked; undefined for ABSENT."""
        return self.states.table.visits(self.states.table.words_of(slots)) == _MARKED

    def forget_unmarked(self) -> None:
        """Remove all entries without a mark."""
        used = self.index.used_slots()
        self.forget(used[~self.is_marked(used)])

    def absorb(self, others: "TableRows", *, read_at: float) -> None:
        """Add the entries of another table, none of which is here; without copies."""
        for new in others.pieces():
            self.add([new], read_at=read_at)

    def check_invariants(self) -> None:
        """For tests: the probation queue of S3-FIFO is empty."""
        super().check_invariants()
        assert self.rows.queues[RowQueue.SMALL].rows == 0
