"""One load of a table that is held whole: its rows come in pieces, and count when all are there.

Knows the fence, unlike the table itself: what changed lately, and the picture does not show, is
left unknown. Reading is the engine's business.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa

from lookup_core.changelog.change import Change, RowChanges
from lookup_core.freshness.recent_changes import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import CanonicalKeys
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
        self._snapshot: TableSnapshot | None = None

    @property
    def row_count(self) -> int:
        """How many rows have come."""
        return self._reload.row_count

    def take(self, changes: Iterable[Change], snapshot: TableSnapshot | None) -> None:
        """Some rows of the picture; raises BackendError when there is no room for them."""
        self._snapshot = snapshot or self._snapshot
        for change in changes:
            assert isinstance(change, RowChanges)  # a picture has rows only
            self._reload.add(self._canonical(change.keys), change.rows)

    def finish(self, now: float) -> bool:
        """Let the picture be the table; False if it was outdated by then, and nothing has changed.

        It is if any row may have changed since.
        """
        unseen = self._fence.unseen(self._snapshot, sent_at=self._began_at, now=now)
        if unseen is None:
            return False
        return self._table.finish_reload(self._reload, unseen=unseen)

    def drop(self) -> None:
        """Give it up, or let go of what it held; harmless after its end."""
        self._table.abort_reload()
