"""Full cache mode: loading of the whole table, and lookups that wait for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.table.full_table import FullTable


class TableLoad:
    """Begun before the picture of the table is taken; ended by `finish`, or by being dropped."""

    def __init__(
        self,
        table: FullTable,
        fence: RecentChanges,
        *,
        canonical: Callable[[pa.RecordBatch], CanonicalKeys],
        now: float,
    ) -> None:
        self._table = table
        self._fence = fence
        self._canonical = canonical
        self._began_at = now
        self._reload = table.begin_reload(now)
        self._unseen: Hashes | None = None  # told before, and not shown by the picture
        self._has_picture = False

    @property
    def row_count(self) -> int:
        """How many rows have come."""
        return self._reload.row_count

    def take(
        self, changes: Iterable[Change], snapshot: TableSnapshot | None, *, now: float
    ) -> None:
        """Some rows of the picture; raises BackendError when there is no room for them."""
        self._begin(snapshot, now)
        for change in changes:
            assert isinstance(change, RowChanges)  # a picture has rows only
            self._reload.add(self._canonical(change.keys), change.rows)

    def finish(self, now: float) -> bool:
        """Let the picture be the table; False if it was outdated by then, and nothing has changed.

        It is if any row may have changed since.
        """
        self._begin(None, now)
        if self._unseen is None:
            return False
        return self._table.finish_reload(self._reload, unseen=self._unseen)

    def _begin(self, snapshot: TableSnapshot | None, now: float) -> None:
        # All pieces are of one picture. What is told while they come, the table notes itself.
        if not self._has_picture:
            self._has_picture = True
            self._unseen = self._fence.unseen(snapshot, sent_at=self._began_at, now=now)


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows of some keys, as a backend would have fetched them."""

    ordinals: npt.NDArray[np.int32]  # [m] which of the keys each row belongs to
    rows: pa.RecordBatch  # [m]
    read_at: float  # from that moment on the store may have had others


class FullMode:
    """The loads of one table; `now` is monotonic seconds."""

    def __init__(self, known: LocalResolver, table: FullTable, fence: RecentChanges) -> None:
        self._known = known
        self._table = table
        self._fence = fence
        self._held_until: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are known, or were but for single keys."""
        return self._table.is_whole

    @property
    def row_count(self) -> int:
        """How many rows are held."""
        return len(self._table)

    @property
    def held_until(self) -> float | None:
        """Until when lookups wait for the first load at most; None if they do not."""
        return self._held_until

    def hold_until(self, at: float) -> None:
        """Let lookups wait for the first load, at most till then, instead of fetching."""
        self._held_until = at

    def holds(self, now: float) -> bool:
        """Whether lookups wait for the first load."""
        if self._held_until is not None and now >= self._held_until:
            self._held_until = None  # for good
        return self._held_until is not None

    def begin_load(self, now: float) -> TableLoad:
        """Begin to load, before the picture of the table is taken; another load is given up."""
        return TableLoad(self._table, self._fence, canonical=self._canonical, now=now)

    def loads_from(self, now: float) -> float:
        """From when on a picture shows what is known to have changed; `now`, as a rule."""
        return self._fence.settled_from(now)

    def end_load(self) -> None:
        """A load has ended: nothing more of it is held, and if all is known, nobody waits."""
        self._table.abort_reload()
        if self.is_whole:
            self._held_until = None

    def confirm(self, told_until: float) -> None:
        """All changes till then are told."""
        self._table.confirm(told_until)

    def rows_of(self, keys: pa.RecordBatch, now: float) -> KnownRows | None:
        """What is known of distinct keys; None unless that is all of them."""
        if not self.is_whole or not self._known.is_trusted:
            return None
        probe = self._table.probe(self._canonical(keys), now)
        if not (probe.is_row | probe.is_missing).all():
            return None
        at = np.flatnonzero(probe.is_row).astype(np.int32)
        gathered = self._table.rows(probe.slots[at], self._known.schema.columns.names)
        oldest_s = float(probe.ages_s.max()) if probe.ages_s.size else 0.0
        return KnownRows(at[gathered.order], gathered.rows, now - oldest_s)

    def _canonical(self, keys: pa.RecordBatch) -> CanonicalKeys:
        return self._known.canonical(keys, np.arange(keys.num_rows, dtype=np.int32))
