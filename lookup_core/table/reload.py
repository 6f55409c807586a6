"""Reload of a full table: unchanged rows stay, others are replaced; and the reload schedule.

Reads nothing: the rows of the snapshot come in batches.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.settings import ReloadSettings
from lookup_core.table.table_rows import Mask, TableRows

_DAY_S = 86_400.0
_FLEET_SPREAD_S = 60.0  # all sidecars load within it, after a time of day
_MEBIBYTE = 2**20


def key_repeats(keys: CanonicalKeys) -> npt.NDArray[np.bool_]:
    """Which keys occur more than once."""
    codes = _codes(keys)
    if len(np.unique(codes)) == len(codes):  # the usual case, and the cheapest test
        return np.zeros(len(codes), np.bool_)
    _, which, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1, np.bool_)


def last_of_each(keys: CanonicalKeys) -> npt.NDArray[np.int32]:
    """The last position of each key, ascending."""
    _, from_end = np.unique(_codes(keys)[::-1], return_index=True)
    return np.sort(keys.size - 1 - from_end).astype(np.int32)


def _codes(keys: CanonicalKeys) -> npt.NDArray[np.uint64] | npt.NDArray[np.int32]:
    # Hashes of byte keys may collide.
    if keys.parts is None:
        return keys.hashes
    return np.asarray(keys.parts.dictionary_encode().indices.to_numpy(), np.int32)


_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """Which rows of two batches of the same columns and length have equal values, bit by bit.

    NaN equals any other NaN.
    """
    is_same = np.ones(left.num_rows, np.bool_)
    for ours, theirs in zip(left.columns, right.columns, strict=True):
        is_same &= _same_values(ours, theirs)
    return is_same


def _same_values(left: pa.Array, right: pa.Array) -> Mask:
    if types.is_list(left.type):
        return _same_lists(left, right)
    if types.is_struct(left.type):
        is_same = _mask(pc.equal(left.is_valid(), right.is_valid()))
        for ours, theirs in zip(left.flatten(), right.flatten(), strict=True):
            is_same &= _same_values(ours, theirs)
        return is_same
    kind = _BITS.get(left.type, left.type)
    equal = pc.equal(left.view(kind), right.view(kind))
    if kind is not left.type and not pc.all(equal, min_count=0).as_py():
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if not equal.null_count:
        return _mask(equal)
    are_null = pc.and_(left.is_null(), right.is_null())
    return _mask(pc.fill_null(equal, are_null))


def _same_lists(left: pa.ListArray, right: pa.ListArray) -> Mask:
    lengths = left.value_lengths()
    is_same = _same_values(lengths, right.value_lengths())
    sizes = np.where(is_same, lengths.fill_null(0).to_numpy(zero_copy_only=False), 0)
    filled = np.flatnonzero(sizes)
    if filled.size:
        at = pa.array(filled)
        are_same = _same_values(left.take(at).flatten(), right.take(at).flatten())
        starts = np.cumsum(sizes[filled]) - sizes[filled]
        is_same[filled] = np.logical_and.reduceat(are_same, starts)
    return is_same


def _mask(values: pa.BooleanArray) -> Mask:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)


def next_load_at(
    settings: ReloadSettings, *, now: float, wall_s: float, jitter: float
) -> float | None:
    """When to load again after a load that ended now, in monotonic seconds; None: on demand.

    `wall_s` is now as Unix time. Leap seconds and changes of the clock shift the time of day.
    `jitter` in [0, 1) spreads loads over the minute after the time of day, so that the sidecars of
    a fleet do not load together.
    """
    if settings.every_s is not None:
        return now + settings.every_s
    if settings.at_s is None:
        return None
    until_s = (settings.at_s - wall_s) % _DAY_S or _DAY_S
    return now + until_s + jitter * _FLEET_SPREAD_S


class Reload:
    """One reload of a `FullTable`, which begins and ends it.

    A key with several rows becomes a hole. For a key that changed since the reload began the change
    counts, not the snapshot.
    """

    def __init__(
        self,
        table: TableRows,
        aside: TableRows,
        schema: DimensionSchema,
        *,
        began_at: float,
        max_bytes: int,
    ) -> None:
        """`aside` is empty."""
        self.began_at = began_at
        self.max_bytes = max_bytes
        self._table = table
        self.aside = aside  # added at the end, holes included
        self._touched = TableRows(schema, max_bytes)  # changed keys
        self._names = schema.columns.names
        self.row_count = 0  # rows read so far
        table.unmark(table.index.used_slots())

    @property
    def bytes(self) -> int:
        """Memory in addition to the table's."""
        return self.aside.bytes + self._touched.bytes

    def add(self, keys: CanonicalKeys, rows: pa.RecordBatch, has_row: Mask) -> None:
        """Add a batch of the snapshot; a key may be in several batches.

        A key without a row here, because its row cannot be read, becomes a hole.

        Raises BackendError if there is no room: then the reload must be dropped.
        """
        count = keys.size
        keys, rows, has_row = self._untouched(keys, rows, has_row)
        found, aside = self._table.find(keys), self.aside.find(keys)
        is_known = found != ABSENT
        is_hole = ~has_row | key_repeats(keys) | (aside != ABSENT)
        is_hole |= is_known & self._table.is_marked(found)
        is_same = self._is_same(found, rows, which=is_known & ~is_hole)
        self._set_aside(keys, rows, is_new=~is_hole & ~is_same, row_count=count)
        self._table.mark(found[is_same])
        if is_hole.any():
            self._add_holes(keys.take(np.flatnonzero(is_hole).astype(np.int32)))
        self.row_count += count

    def touch(self, keys: CanonicalKeys) -> None:
        """Record changes of distinct keys: what the table has of them counts."""
        self.aside.forget(self.aside.find(keys))
        new = np.flatnonzero(self._touched.find(keys) == ABSENT).astype(np.int32)
        self._touched.add([self._touched.new_negatives(keys.take(new))], read_at=self.began_at)

    def still_unseen(self, hashes: Hashes) -> Hashes:
        """Which of these keys have not changed since the reload began."""
        return hashes[self._touched.index.table.find(hashes) == ABSENT]

    def merged(self) -> TableRows:
        """The rows that are left in the table, and the new ones."""
        large, small = self._table, self.aside
        if len(large) < len(small):
            large, small = small, large
        large.absorb(small, read_at=self.began_at)
        large.shrink_if_sparse()
        return large

    def check_invariants(self) -> None:
        """For tests."""
        self.aside.check_invariants()
        self._touched.check_invariants()

    def _untouched(
        self, keys: CanonicalKeys, rows: pa.RecordBatch, has_row: Mask
    ) -> tuple[CanonicalKeys, pa.RecordBatch, Mask]:
        if not len(self._touched):
            return keys, rows, has_row
        kept = np.flatnonzero(self._touched.find(keys) == ABSENT).astype(np.int32)
        return keys.take(kept), rows.take(pa.array(kept)), has_row[kept]

    def _is_same(self, found: Slots, rows: pa.RecordBatch, *, which: Mask) -> Mask:
        is_same = np.zeros(len(found), np.bool_)
        at = np.flatnonzero(which)
        at = at[~self._table.is_hole(found[at])]
        stored = self._table.rows.table.gather_slots(found[at], self._names)
        at = at[stored.order]
        is_same[at] = same_rows(stored.rows, rows.take(pa.array(at)))
        return is_same

    def _set_aside(
        self, keys: CanonicalKeys, rows: pa.RecordBatch, *, is_new: Mask, row_count: int
    ) -> None:
        at = np.flatnonzero(is_new).astype(np.int32)
        new = self.aside.new_rows(keys.take(at), rows.take(pa.array(at)))
        room_bytes = self.max_bytes - self._table.bytes - self._touched.bytes
        if not self.aside.has_room(new, room_bytes):
            raise self._is_full(self.row_count + row_count)
        self.aside.add([new], read_at=self.began_at)

    def _add_holes(self, keys: CanonicalKeys) -> None:
        keys = keys.take(last_of_each(keys))
        found = self._table.find(keys)
        self._table.unmark(found[found != ABSENT])  # its row is one of several
        self.aside.forget(self.aside.find(keys))
        self.aside.add([self.aside.new_negatives(keys)], read_at=self.began_at)

    def _is_full(self, row_count: int) -> BackendError:
        detail = (
            f"the table needs more than the {self.max_bytes // _MEBIBYTE:,} MiB that"
            f" cache.max_bytes and limits.memory leave it: full at row {row_count:,}, next to"
            f" {len(self._table):,} rows of the former load; raise them"
        )
        return BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
