"""One load of a table that is held whole: its rows come in pieces, and count when all are there.

Knows the fence, unlike the table itself: what changed lately, and the picture does not show, is
left unknown. Reading is the engine's business.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa

from lookup_core.changelog.change import Change, RowChanges
from lookup_core.freshness.recent_changes import RecentChanges
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
