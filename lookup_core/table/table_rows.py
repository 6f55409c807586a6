"""Rows and holes of a table by key: a key that is not here has no row, a hole may have one.

No lifetimes, no eviction, no bound: what may come in is decided by who holds it.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cached_entries import CachedEntries, Newcomers
from lookup_core.cache.eviction import segment_bytes
from lookup_core.cache.segments import RowQueue
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots

Mask = npt.NDArray[np.bool_]

_LIFE_S = (
    86_400.0  # ages beyond a day need not be told: the table's own is less, or all that counts
)
_SPARSE = 8  # so many slots for each that is used are worth to be given back
_MARKED = 1


class TableRows:
    """Entries of the main queue are rows, those of the queue for absences are holes.

    A mark on an entry says that it stays when a reload ends; new entries have none. It stands where
    a cache counts visits.
    """

    def __init__(self, schema: DimensionSchema, max_bytes: int) -> None:
        self.entries = CachedEntries(schema, segment_bytes(max_bytes), life_s=_LIFE_S)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def bytes(self) -> int:
        """All that is held: rows, keys, index and what is kept by slot."""
        return self.entries.bytes

    @property
    def hole_count(self) -> int:
        """How many of the keys are holes."""
        return self.entries.rows.queue_rows(RowQueue.ABSENT)

    def find(self, keys: CanonicalKeys) -> Slots:
        """The slot of each key, ABSENT where there is none."""
        return self.entries.find(keys)

    def is_hole(self, slots: Slots) -> Mask:
        """Which of these slots are holes; of ABSENT it says nothing."""
        return self.entries.states.is_absence(self.entries.states.of(slots))

    def arrivals(self, keys: CanonicalKeys, rows: pa.RecordBatch) -> Newcomers:
        """Keys with a row each, which is in a batch of its own and no slice."""
        every = np.ones(keys.size, np.bool_)
        return self.entries.newcomers(keys, every, queue=RowQueue.MAIN, rows=rows)

    def holes(self, keys: CanonicalKeys) -> Newcomers:
        """The same without rows."""
        every = np.ones(keys.size, np.bool_)
        rows = pa.record_batch([pa.nulls(keys.size)], names=["none"]).select([])
        return self.entries.newcomers(keys, every, queue=RowQueue.ABSENT, rows=rows)

    def has_room(self, newcomers: Newcomers, max_bytes: int) -> bool:
        """Whether no more than so much would be held after `add`."""
        more_bytes = self.entries.growth_bytes(len(newcomers.hashes), kept=len(self))
        most_bytes = max_bytes - more_bytes - newcomers.bytes
        if self.bytes > most_bytes:
            self.entries.rows.compact()
        return self.bytes <= most_bytes

    def add(self, newcomers: Newcomers, *, read_at: float) -> Slots:
        """Take in keys that are distinct and not here; the slots that they came into."""
        if not len(newcomers.hashes):
            return np.zeros(0, np.int32)
        return self.entries.add([newcomers], read_at=read_at)

    def forget(self, slots: Slots) -> None:
        """Let these go, each named once, but for those that are ABSENT."""
        slots = slots[slots != ABSENT]
        if len(slots):
            self.entries.forget(slots)

    def forget_hashes(self, hashes: Hashes) -> None:
        """Let all keys of these hashes go."""
        while len(slots := np.unique(self.entries.index.find(hashes))) and slots[-1] != ABSENT:
            self.forget(slots)

    def mark(self, slots: Slots) -> None:
        """Let these stay."""
        self.entries.states.set_visits(slots, _MARKED)

    def unmark(self, slots: Slots) -> None:
        """Let these be as they came."""
        self.entries.states.set_visits(slots, 0)

    def is_marked(self, slots: Slots) -> Mask:
        """Which of these slots are to stay; of ABSENT it says nothing."""
        return self.entries.states.visits(self.entries.states.of(slots)) == _MARKED

    def unmark_all(self) -> None:
        """Let all be as they came."""
        self.unmark(self.entries.index.used_slots())

    def forget_unmarked(self) -> int:
        """Let all go that have no mark; how many."""
        used = self.entries.index.used_slots()
        going = used[~self.is_marked(used)]
        self.forget(going)
        return len(going)

    def absorb(self, others: "TableRows", *, read_at: float) -> None:
        """Take in all of the others, none of which is here; as they are stored, without copies."""
        for newcomers in others.entries.pieces():
            self.add(newcomers, read_at=read_at)

    def shrink(self) -> None:
        """Give back what so few entries do not need, if it is much; slots mean others then."""
        entries = self.entries
        if entries.slot_count >= _SPARSE * entries.index.least_slots(len(entries)):
            entries.shrink()

    def check_invariants(self) -> None:
        """For tests: nothing stands in the queue of rows that have to prove themselves."""
        self.entries.check_invariants()
        assert self.entries.rows.queue_rows(RowQueue.SMALL) == 0
