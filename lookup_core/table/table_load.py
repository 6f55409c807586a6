"""Load of a full table under changes: a snapshot's rows, checked against the fence.

How the rows come in is the caller's concern.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes
from lookup_core.table.full_table import FullTable


class TableLoad:
    """Begun before the snapshot is taken; ended by `finish`, or dropped; `now` is monotonic."""

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
        self.reload = table.begin_reload(now)
        # Keys with changes that the snapshot does not contain; None before the first piece.
        self._unseen: Hashes | None = None

    def add_changes(
        self, changes: Iterable[Change], snapshot: TableSnapshot | None, *, now: float
    ) -> bool:
        """Add rows of the snapshot; False, without any effect, once the load is outdated.

        So it is if any row may have changed since its snapshot, or if another load began. Raises
        BackendError if there is no room for the rows.
        """
        if not self._is_current(snapshot, now):
            return False
        for change in changes:
            assert isinstance(change, RowChanges)  # a snapshot has rows only
            self.reload.add(self._canonical(change.keys), change.rows, change.has_row)
        return True

    def finish(self, now: float) -> bool:
        """Replace the table by the snapshot; False, without any effect, if it is outdated."""
        if not self._is_current(None, now) or self._unseen is None:
            return False
        return self._table.finish_reload(self.reload, unseen=self._unseen)

    def close(self) -> None:
        """Free the memory of the load; a no-op after `finish`."""
        self._table.abort_reload(self.reload)

    def _is_current(self, snapshot: TableSnapshot | None, now: float) -> bool:
        # All pieces are of one snapshot. The table records changes during the load itself.
        if self._unseen is None and self._table.is_reloading(self.reload):
            self._unseen = self._fence.unseen(snapshot, sent_at=self.reload.began_at, now=now)
            self._fence.note_load(snapshot)
            if self._unseen is None:  # any row may have changed
                self.close()
        return self._table.is_reloading(self.reload)
