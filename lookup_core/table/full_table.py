"""A table that is held whole: what is not here has no row, and rows do not expire.

Answers the same questions as a `RowCache`, but nothing is evicted, also when memory is short: a
lower bound only lets nothing more in. How the rows come in, and which changes follow, is decided by
who loads it and who follows its source.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.row_cache import Bookmark, Hit, Probe
from lookup_core.cache.row_store import Gathered
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.keys.single_keys import SingleKey
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason
from lookup_core.table.reload import Reload, last_of_each
from lookup_core.table.table_rows import TableRows

Mask = npt.NDArray[np.bool_]

_NEVER_S = np.inf


class FullTable:
    """The rows of one dimension; `now` is monotonic seconds throughout.

    Nothing is known until the first reload has ended, and again after `clear`. A *hole* is a key
    that has changed, nobody says how: it is unknown until a query has brought what it is now, and
    `fill` closes it. A key with several rows is a hole for good: each of its lookups is answered by
    a query, as if nothing were kept (`ambiguous`, or as `match` says). A *suspect* is a key, known
    by its hash only, whose last change is later than the picture that was loaded.
    """

    def __init__(self, schema: DimensionSchema, settings: CacheSettings) -> None:
        self._schema = schema
        self._most_bytes = self._max_bytes = settings.max_bytes
        self._table = TableRows(schema, settings.max_bytes)
        self._suspects: Hashes = np.zeros(0, np.uint64)
        self._is_whole = False
        self._fresh_at = 0.0
        self._reload: Reload | None = None
        self._evictions = dict.fromkeys(EvictionReason, 0)

    def __len__(self) -> int:
        """How many rows are known."""
        return self._row_count

    @property
    def bytes(self) -> int:
        """All that is held: rows, keys, index, and what a reload has set aside."""
        aside_bytes = 0 if self._reload is None else self._reload.bytes
        return self._table.bytes + self._suspects.nbytes + aside_bytes

    @property
    def is_whole(self) -> bool:
        """Whether the table was loaded, so that what is not here has no row."""
        return self._is_whole

    @property
    def hole_count(self) -> int:
        """How many keys are unknown though the table is whole; those with several rows are."""
        return self._table.hole_count + len(self._suspects)

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """What is known of the keys."""
        slots = self._table.find(keys)
        states = self._table.entries.states
        words = states.of(slots)
        is_found = slots != ABSENT
        is_here = is_found & ~states.is_absence(words) & self._is_whole
        is_missing = ~is_found & self._is_whole
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
            ttl_s=np.full(keys.size, _NEVER_S),
        )

    def peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """The same: a probe leaves no trace either."""
        return self.probe(keys, now)

    def hit(self, key: SingleKey, now: float) -> Hit | None:
        """The fresh row of one key; None where there is none."""
        entries = self._table.entries
        slot = entries.find_one(key) if self._is_whole else ABSENT
        if slot == ABSENT or not entries.states.is_row(entries.states.of_one(slot)):
            return None
        bookmark = Bookmark(entries.rows.place(slot), _NEVER_S)
        return Hit(entries.rows.row(slot), self._row_age_s(slot, now), bookmark)

    def revisit(self, bookmark: Bookmark, now: float) -> float | None:
        """The age of the row that was a hit, if it would be one again."""
        if not self._is_whole or not self._table.entries.rows.is_at(bookmark.place):
            return None
        return self._row_age_s(bookmark.place.slot, now)

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order they are stored."""
        return self._table.entries.rows.gather(slots, names)

    def fill(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        rows: pa.RecordBatch,
        read_at: float,
        now: float,
    ) -> None:
        """Close holes with rows (those of the keys that have one, in order) and absences.

        The keys are distinct. What is no hole is left as it is: the table knows better. Rows that
        there is no room for leave their holes open.
        """
        del now
        slots = self._table.find(keys)
        is_open = (slots != ABSENT) & self._table.is_hole(slots)
        if self._suspects.size:
            is_open |= (slots == ABSENT) & has_row & np.isin(keys.hashes, self._suspects)
        closed = np.flatnonzero(is_open & has_row).astype(np.int32)
        stored = rows.take(pa.array(np.flatnonzero(is_open[has_row])))
        newcomers = self._table.arrivals(keys.take(closed), stored)
        stays = (slots[closed] != ABSENT) & self._table.is_marked(slots[closed])
        if self._table.has_room(newcomers, self._room_bytes):
            self._table.forget(slots[is_open])
            self._table.mark(self._table.add(newcomers, read_at=read_at)[stays])

    def apply(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        is_gone: Mask,
        rows: pa.RecordBatch,
        now: float,
    ) -> None:
        """Follow n changes in their order: the row is now `rows[i]`, or gone, or else a hole.

        A row stands for its key only where no other row has that key. What there is no room for
        becomes a hole; should there be no room for those, nothing is known any more.
        """
        last = last_of_each(keys)
        keys, has_row, is_gone = keys.take(last), has_row[last], is_gone[last]
        if not self._begin_change(keys, has_row):
            return
        came = np.flatnonzero(has_row).astype(np.int32)
        newcomers = self._table.arrivals(keys.take(came), rows.take(pa.array(last[came])))
        has_room = self._table.has_room(newcomers, self._room_bytes)
        if has_room:
            self._table.mark(self._table.add(newcomers, read_at=now))
        self._punch(keys, ~is_gone & ~(has_row & has_room), now)

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Let the keys be holes; returns how many rows went."""
        keys = keys.take(last_of_each(keys))
        before = self._row_count
        if self._begin_change(keys, np.zeros(keys.size, np.bool_)):
            self._punch(keys, np.ones(keys.size, np.bool_), self._fresh_at)
        return before - self._row_count

    def clear(self) -> int:
        """Know nothing until the table is loaded again; returns how many rows went.

        A reload that is under way is given up.
        """
        count = self._row_count
        self._evictions[EvictionReason.INVALIDATED] += count
        self._table = TableRows(self._schema, self._most_bytes)
        self._suspects = np.zeros(0, np.uint64)
        self._is_whole, self._reload = False, None
        return count

    def set_max_bytes(self, max_bytes: int) -> None:
        """Let nothing more in beyond so much; what is here stays."""
        self._max_bytes = max_bytes
        if self._reload is not None:
            self._reload.max_bytes = max_bytes

    def confirm(self, now: float) -> None:
        """All that is here is as in the table now: its source has told all changes till then."""
        self._fresh_at = max(self._fresh_at, now)

    def begin_reload(self, now: float) -> Reload:
        """Begin to load, before the picture of the table is taken; another reload is given up."""
        self._reload = Reload(self._table, self._schema, began_at=now, max_bytes=self._max_bytes)
        return self._reload

    def finish_reload(self, reload: Reload, *, unseen: Hashes) -> bool:
        """Be as the reload has it, all at once; False if it was given up meanwhile.

        `unseen` are keys whose lately noted changes the picture does not show.
        """
        if reload is not self._reload:
            return False
        unseen = reload.still_unseen(unseen)
        before = self._row_count
        reload.drop_outdated()
        self._evictions[EvictionReason.REPLACED] += before - self._row_count
        self._table = reload.merged()
        self._table.forget_hashes(unseen)
        self._suspects, self._reload = unseen, None
        self._is_whole, self._fresh_at = True, max(self._fresh_at, reload.began_at)
        return True

    def abort_reload(self) -> None:
        """Give up the reload under way, if there is one; what was known before is known still."""
        self._reload = None

    def oldest_age_s(self, now: float) -> float | None:
        """How long ago the table was known to be so; None while nothing is known."""
        return now - self._fresh_at if self._is_whole else None

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""
        return CacheStatistics(
            rows=self._row_count,
            bytes=self.bytes,
            max_bytes=self._max_bytes,
            evictions=dict(self._evictions),
        )

    def check_invariants(self) -> None:
        """For tests: all parts hold the same."""
        self._table.check_invariants()
        if self._reload is not None:
            self._reload.check_invariants()

    @property
    def _row_count(self) -> int:
        return len(self._table) - self._table.hole_count

    @property
    def _room_bytes(self) -> int:
        aside_bytes = 0 if self._reload is None else self._reload.bytes
        return self._max_bytes - aside_bytes

    def _row_age_s(self, slot: int, now: float) -> float:
        states = self._table.entries.states
        return min(states.age_s(states.of_one(slot), now), now - self._fresh_at)

    def _begin_change(self, keys: CanonicalKeys, has_row: Mask) -> bool:
        """Let go of what is known of the keys; False where it makes no difference to anybody."""
        if self._reload is not None:
            self._reload.touch(keys)
        elif not self._is_whole:
            return False
        slots = self._table.find(keys)
        was_row = (slots != ABSENT) & ~self._table.is_hole(slots)
        self._evictions[EvictionReason.REPLACED] += int((was_row & has_row).sum())
        self._evictions[EvictionReason.INVALIDATED] += int((was_row & ~has_row).sum())
        self._table.forget(slots)
        if self._suspects.size:
            self._suspects = self._suspects[~np.isin(self._suspects, keys.hashes)]
        return True

    def _punch(self, keys: CanonicalKeys, which: Mask, now: float) -> None:
        holes = self._table.holes(keys.take(np.flatnonzero(which).astype(np.int32)))
        if self._table.has_room(holes, self._most_bytes):
            self._table.mark(self._table.add(holes, read_at=now))
        else:
            self.clear()
