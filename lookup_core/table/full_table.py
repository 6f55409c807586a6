"""Full cache mode: the whole table in memory, where an unknown key has no row.

A `DimensionCache` in which nothing expires or is evicted. Loads and feeds decide which rows and
changes come in.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from lookup_core.cache.cache_memory import CacheMemory, OwnMemory
from lookup_core.cache.cache_view import Gathered
from lookup_core.cache.dimension_cache import Hit, Probe
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, SingleKey
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason
from lookup_core.table.reload import Reload, last_of_each
from lookup_core.table.table_rows import Mask, TableRows


class FullTable:
    """The rows of one dimension; `now` is monotonic seconds throughout.

    All keys are unknown until the first reload ends, and after `clear`. A *hole* is a key that
    changed without its row being reported: it is unknown until `fill` gets its row from a query. A
    key with several rows stays a hole: each lookup of it needs a query. A *suspect* is a key, known
    by its hash only, whose last change is not in the snapshot that was loaded.
    """

    takes_changed_rows = True

    def __init__(
        self, schema: DimensionSchema, settings: CacheSettings, memory: CacheMemory | None = None
    ) -> None:
        """`memory` is this process's own by default."""
        self._schema = schema
        self._memory = OwnMemory() if memory is None else memory
        self._configured_bytes = self._max_bytes = settings.max_bytes
        self._table = self._empty_table()
        self._suspects: Hashes = np.zeros(0, np.uint64)
        self.is_whole = False  # a load ended: keys that are not in the table have no row
        self._fresh_at = 0.0
        self._reload: Reload | None = None
        self._evictions = dict.fromkeys(EvictionReason, 0)

    def __len__(self) -> int:
        """The number of known rows."""
        return self._row_count

    @property
    def bytes(self) -> int:
        """Memory of rows, keys, index and of the reload under way."""
        return self._table.bytes + self._suspects.nbytes + self._reload_bytes

    @property
    def entries(self) -> TableRows:
        """The present rows and holes, for reading."""
        return self._table

    @property
    def hole_count(self) -> int:
        """The number of unknown keys of a loaded table, those with several rows included."""
        return self._table.hole_count + len(self._suspects)

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """The rows and missing keys; counts as no visit."""
        slots = self._table.find(keys)
        states = self._table.states.table
        words = states.words_of(slots)
        is_found = slots != ABSENT
        is_here = is_found & ~states.is_negative(words) & self.is_whole
        is_missing = ~is_found & self.is_whole
        if self._suspects.size:
            is_missing &= ~np.isin(keys.hashes, self._suspects)
        age_s = now - self._fresh_at
        ages_s = np.where(is_found, np.minimum(states.ages_s(words, now), age_s), age_s)
        return Probe(
            slots=slots,
            is_row=is_here,
            is_missing=is_missing,
            is_stale=np.zeros(keys.size, np.bool_),
            ages_s=ages_s,
            ttl_s=np.full(keys.size, np.inf),
        )

    peek = probe  # no visits are counted here

    def hit(self, key: SingleKey, now: float) -> Hit | None:
        """The row of one key, if it is known."""
        slot = self._table.find_one(key) if self.is_whole else ABSENT
        age_s = None if slot == ABSENT else self._table.states.table.row_age_s(slot, now)
        if age_s is None:
            return None
        return Hit(self._table.rows.row(slot), min(age_s, now - self._fresh_at))

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order of their storage."""
        return self._table.rows.table.gather_slots(slots, names)

    def visit(self, slots: Slots) -> None:
        """Nothing is evicted: visits do not count."""

    def fill(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        rows: pa.RecordBatch,
        read_at: float,
        now: float,
    ) -> None:
        """Close holes: `rows` are those of the distinct keys that have one, in order.

        Other keys stay as they are: the table is newer. Without room the holes stay open.
        """
        del now  # no row expires
        slots = self._table.find(keys)
        is_open = (slots != ABSENT) & self._table.is_hole(slots)
        if self._suspects.size:
            is_open |= (slots == ABSENT) & has_row & np.isin(keys.hashes, self._suspects)
        closed = np.flatnonzero(is_open & has_row).astype(np.int32)
        stored = rows.take(pa.array(np.flatnonzero(is_open[has_row])))
        new = self._table.new_rows(keys.take(closed), stored)
        stays = (slots[closed] != ABSENT) & self._table.is_marked(slots[closed])
        with self._changing():
            if self._table.has_room(new, self._max_bytes - self._reload_bytes):
                self._table.forget(slots[is_open])
                self._table.mark(self._table.add([new], read_at=read_at)[stays])

    def settle(self, now: float) -> None:
        """Readers see each change at once."""

    def apply(self, keys: CanonicalKeys, changes: RowChanges, now: float) -> int:
        """Apply n changes in their order: the row is `rows[i]` now, or deleted, or else a hole.

        A row is given only if no other row has its key. Without room for a row the key becomes a
        hole; without room for holes the table is cleared. Returns how many rows less are known.
        """
        has_row, is_gone, rows = changes.has_row, changes.is_gone, changes.rows
        before = self._row_count
        last = last_of_each(keys)
        keys, has_row, is_gone = keys.take(last), has_row[last], is_gone[last]
        came = np.flatnonzero(has_row).astype(np.int32)
        with self._changing():
            if not self._begin_change(keys, has_row):
                return 0
            new = self._table.new_rows(keys.take(came), rows.take(pa.array(last[came])))
            has_room = self._table.has_room(new, self._max_bytes - self._reload_bytes)
            if has_room:
                self._table.mark(self._table.add([new], read_at=now))
            self._add_holes(keys, ~is_gone & ~(has_row & has_room), now)
        return max(before - self._row_count, 0)

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Make the keys holes; returns how many rows were removed."""
        keys = keys.take(last_of_each(keys))
        before = self._row_count
        with self._changing():
            if self._begin_change(keys, np.zeros(keys.size, np.bool_)):
                self._add_holes(keys, np.ones(keys.size, np.bool_), self._fresh_at)
        return before - self._row_count

    def clear(self) -> int:
        """Remove all rows until the next load; returns how many there were.

        Drops a reload under way.
        """
        with self._changing():
            return self._clear()

    def begin_move(self) -> None:
        """Store the arrays in the memory again; the rows follow."""
        for table in self._tables():
            table.begin_move()

    def move_next(self) -> bool:
        """Store some rows in the memory again; false once all are stored."""
        return any(table.rows.move_next() for table in self._tables())

    def end_move(self) -> None:
        """Let readers use the table."""
        with self._changing():
            if self.is_whole:
                self._table.end_move()
        self._memory.confirm(self._fresh_at)

    def set_max_bytes(self, max_bytes: int) -> None:
        """Set the bound for new rows; present rows stay."""
        self._max_bytes = max_bytes
        if self._reload is not None:
            self._reload.max_bytes = max_bytes

    def confirm(self, reported_until: float) -> None:
        """All changes until then are reported: the rows are as fresh as that."""
        self._fresh_at = max(self._fresh_at, reported_until)
        self._memory.confirm(self._fresh_at)

    def begin_reload(self, now: float) -> Reload:
        """Begin a reload, before its snapshot is taken; drops another one under way."""
        aside = TableRows(self._schema, self._max_bytes, self._memory)
        self._reload = Reload(
            self._table, aside, self._schema, began_at=now, max_bytes=self._max_bytes
        )
        return self._reload

    def finish_reload(self, reload: Reload, *, unseen: Hashes) -> bool:
        """Replace the rows by those of the reload, at once; False if it was dropped.

        `unseen` are keys with changes that the snapshot does not contain.
        """
        if reload is not self._reload:
            return False
        unseen = reload.still_unseen(unseen)
        before = self._row_count
        with self._changing():
            self._table.forget_unmarked()  # neither in the snapshot nor changed since
            self._evictions[EvictionReason.REPLACED] += before - self._row_count
            self._table = reload.merged()
            self._table.forget_hashes(unseen)
            self._suspects, self._reload = unseen, None
            self.is_whole = True
        self.confirm(reload.began_at)  # behind the publication of the rows
        return True

    def is_reloading(self, reload: Reload) -> bool:
        """Whether this reload is under way: neither dropped nor finished."""
        return reload is self._reload

    def abort_reload(self, reload: Reload) -> None:
        """Drop this reload, if it is under way; the former rows stay."""
        if reload is self._reload:
            self._reload = None

    def oldest_age_s(self, now: float) -> float | None:
        """Seconds since the rows were known to be current; None until a load ends."""
        return now - self._fresh_at if self.is_whole else None

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""
        return CacheStatistics(
            rows=self._row_count,
            bytes=self.bytes,
            max_bytes=self._max_bytes,
            evictions=dict(self._evictions),
        )

    def check_invariants(self) -> None:
        """For tests."""
        self._table.check_invariants()
        if self._reload is not None:
            self._reload.check_invariants()

    @property
    def _row_count(self) -> int:
        return len(self._table) - self._table.hole_count

    @property
    def _reload_bytes(self) -> int:
        return 0 if self._reload is None else self._reload.bytes

    def _tables(self) -> Iterator[TableRows]:
        yield self._table
        if self._reload is not None:
            yield self._reload.aside

    def _begin_change(self, keys: CanonicalKeys, has_row: Mask) -> bool:
        """Remove the keys; False if nothing is loaded or loading."""
        if self._reload is not None:
            self._reload.touch(keys)
        elif not self.is_whole:
            return False
        slots = self._table.find(keys)
        was_row = (slots != ABSENT) & ~self._table.is_hole(slots)
        self._evictions[EvictionReason.REPLACED] += int((was_row & has_row).sum())
        self._evictions[EvictionReason.INVALIDATED] += int((was_row & ~has_row).sum())
        self._table.forget(slots)
        if self._suspects.size:
            self._suspects = self._suspects[~np.isin(self._suspects, keys.hashes)]
        return True

    def _add_holes(self, keys: CanonicalKeys, which: Mask, now: float) -> None:
        holes = self._table.new_negatives(keys.take(np.flatnonzero(which).astype(np.int32)))
        if self._table.has_room(holes, self._configured_bytes):
            self._table.mark(self._table.add([holes], read_at=now))
        else:
            self._clear()

    def _clear(self) -> int:
        count = self._row_count
        self._evictions[EvictionReason.INVALIDATED] += count
        self._table = self._empty_table()
        self._suspects = np.zeros(0, np.uint64)
        self.is_whole, self._reload = False, None
        return count

    def _empty_table(self) -> TableRows:
        table = TableRows(self._schema, self._configured_bytes, self._memory)
        table.publish()
        return table

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let readers conclude nothing from absent keys meanwhile, and publish the change."""
        self._memory.begin_change()
        try:
            yield
        finally:
            if self.is_whole:  # before, readers know no row, although changes may have brought some
                self._table.publish()
            self._memory.end_change(is_whole=self.is_whole and not self._suspects.size)
