"""A table on its way into memory, for the first time or anew: what is still the same stays.

Rows are compared batch by batch with those that are here. What has not changed is only marked;
changed and new rows stand aside until the end, when all is put in order in one step. So it needs
the table, its changed rows, and the batches under way: no second copy. What it reads from is the
loader's business.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.keys.key_index import ABSENT, Slots
from lookup_core.table.key_repeats import key_repeats, last_of_each
from lookup_core.table.same_rows import same_rows
from lookup_core.table.table_rows import TableRows

Mask = npt.NDArray[np.bool_]

_MEBIBYTE = 2**20


class Reload:
    """Made and ended by `FullTable`, and fed by whoever reads the table's picture.

    A key with several rows becomes a hole. A key that was touched since the reload began is as the
    changes have it, whatever the picture shows.
    """

    def __init__(
        self, table: TableRows, schema: DimensionSchema, *, began_at: float, max_bytes: int
    ) -> None:
        self.began_at = began_at
        self.max_bytes = max_bytes
        self._table = table
        self._aside = TableRows(schema, max_bytes)  # what comes in at the end, holes included
        self._touched = TableRows(schema, max_bytes)  # only the keys of it are of interest
        self._names = schema.columns.names
        self._row_count = 0
        table.unmark_all()

    @property
    def bytes(self) -> int:
        """What is held beside the table."""
        return self._aside.bytes + self._touched.bytes

    @property
    def row_count(self) -> int:
        """How many rows were read so far."""
        return self._row_count

    def add(self, keys: CanonicalKeys, rows: pa.RecordBatch) -> None:
        """Take a batch of the picture; a key may be in this one and in others.

        Raises BackendError when there is no room: then the reload is to be given up.
        """
        count = keys.size
        keys, rows = self._untouched(keys, rows)
        found, aside = self._table.find(keys), self._aside.find(keys)
        is_known = found != ABSENT
        is_several = key_repeats(keys) | (aside != ABSENT)
        is_several |= is_known & self._table.is_marked(found)
        is_same = self._is_same(found, rows, which=is_known & ~is_several)
        self._set_aside(keys, rows, is_new=~is_several & ~is_same, row_count=count)
        self._table.mark(found[is_same])
        if is_several.any():
            self._punch(keys.take(np.flatnonzero(is_several).astype(np.int32)))
        self._row_count += count

    def touch(self, keys: CanonicalKeys) -> None:
        """From now on these keys, which are distinct, are as the table has them."""
        self._aside.forget(self._aside.find(keys))
        new = np.flatnonzero(self._touched.find(keys) == ABSENT).astype(np.int32)
        self._touched.add(self._touched.holes(keys.take(new)), read_at=self.began_at)

    def still_unseen(self, hashes: Hashes) -> Hashes:
        """Which of these keys nobody has touched."""
        return hashes[self._touched.entries.index.find(hashes) == ABSENT]

    def drop_outdated(self) -> None:
        """Let go of all that was neither the same in the picture nor touched: the first step."""
        self._table.forget_unmarked()

    def merged(self) -> TableRows:
        """What is left, with what was set aside: the second step, and the end."""
        large, small = self._table, self._aside
        if len(large) < len(small):
            large, small = small, large
        large.absorb(small, read_at=self.began_at)
        large.shrink()
        return large

    def check_invariants(self) -> None:
        """For tests: what was touched waits nowhere."""
        self._aside.check_invariants()
        self._touched.check_invariants()

    def _untouched(
        self, keys: CanonicalKeys, rows: pa.RecordBatch
    ) -> tuple[CanonicalKeys, pa.RecordBatch]:
        if not len(self._touched):
            return keys, rows
        kept = np.flatnonzero(self._touched.find(keys) == ABSENT).astype(np.int32)
        return keys.take(kept), rows.take(pa.array(kept))

    def _is_same(self, found: Slots, rows: pa.RecordBatch, *, which: Mask) -> Mask:
        is_same = np.zeros(len(found), np.bool_)
        at = np.flatnonzero(which)
        at = at[~self._table.is_hole(found[at])]
        stored = self._table.entries.rows.gather(found[at], self._names)
        at = at[stored.order]
        is_same[at] = same_rows(stored.rows, rows.take(pa.array(at)))
        return is_same

    def _set_aside(
        self, keys: CanonicalKeys, rows: pa.RecordBatch, *, is_new: Mask, row_count: int
    ) -> None:
        at = np.flatnonzero(is_new).astype(np.int32)
        newcomers = self._aside.arrivals(keys.take(at), rows.take(pa.array(at)))
        room_bytes = self.max_bytes - self._table.bytes - self._touched.bytes
        if not self._aside.has_room(newcomers, room_bytes):
            raise self._is_full(self._row_count + row_count)
        self._aside.add(newcomers, read_at=self.began_at)

    def _punch(self, keys: CanonicalKeys) -> None:
        keys = keys.take(last_of_each(keys))
        found = self._table.find(keys)
        self._table.unmark(found[found != ABSENT])  # the row that was here is not the only one
        self._aside.forget(self._aside.find(keys))
        self._aside.add(self._aside.holes(keys), read_at=self.began_at)

    def _is_full(self, row_count: int) -> BackendError:
        detail = (
            f"the table needs more than the {self.max_bytes // _MEBIBYTE:,} MiB that"
            f" cache.max_bytes and limits.memory leave it: full at row {row_count:,}, beside"
            f" {len(self._table):,} rows of the former load; raise them"
        )
        return BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
