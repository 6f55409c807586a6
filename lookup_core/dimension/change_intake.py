"""What a dimension does when it hears that rows have changed: forgets, detaches, and fences.

Whether what it hears from lives is for others to say (`freshness.feed_health`); what they say is
believed here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.changelog.change_decoder import Change, RowChanges, TableChange
from lookup_core.dimension.flight_table import FlightTable
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.totals import Totals
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.statistics import InvalidationOrigin


@dataclass(frozen=True, slots=True)
class ChangeIntake:
    """The changes of one dimension's rows; `now` is monotonic seconds.

    What is being read of a changed key answers those who wait, takes no newcomers, and is not kept.
    What is read afterwards is kept if the read saw the change. A key that waits because it had no
    row is asked again at once.
    """

    known: LocalResolver
    flights: FlightTable
    queries: QueryTable
    fence: RecentChanges
    totals: Totals

    def on_changes(self, changes: Iterable[Change], origin: InvalidationOrigin, now: float) -> int:
        """Take changes in, in their order; returns how many cached entries went."""
        forgotten = 0
        for change in changes:
            if isinstance(change, TableChange):
                self.fence.note_table(change.transaction_id, now)
                forgotten += self.invalidate(None, origin)
            else:
                forgotten += self._on_rows(change, origin, now)
        return forgotten

    def trust(self, *, is_trusted: bool) -> None:
        """Whether all changes are told, as it is without another word.

        If not, nothing is answered from the cache, but for rows in the place of an error where
        those may be stale, and nothing is kept. What is there comes back with the trust.
        """
        self.known.is_trusted = is_trusted

    def invalidate(self, keys: TypedKeys | None, origin: InvalidationOrigin) -> int:
        """Somebody says that keys (all for None) have changed, and that this can be seen by now."""
        hashes, cached = self.known.forget(keys)
        self.flights.detach(self.flights.with_hashes(hashes))
        self.totals.count_invalidations(origin, cached if keys is None else keys.size)
        return cached

    def may_keep(
        self, query: Query, snapshot: TableSnapshot | None, now: float
    ) -> npt.NDArray[np.bool_]:
        """Of which keys what a query brings now may be kept; `snapshot` is what its read saw."""
        may_keep = self.flights.may_keep(query.flights)
        if not self.known.is_trusted:
            return np.zeros_like(may_keep)
        hashes = self.flights.hashes(query.flights)
        is_admitted = self.fence.admits(hashes, snapshot, sent_at=query.sent_at, now=now)
        self.totals.fenced_keys += int((may_keep & ~is_admitted).sum())
        return may_keep & is_admitted

    def _on_rows(self, change: RowChanges, origin: InvalidationOrigin, now: float) -> int:
        keys, forgotten = self.known.change(change, now)
        self.fence.note(keys.hashes, change.transaction_ids, now)
        flights = self.flights.with_hashes(keys.hashes)
        is_postponed = self.flights.is_postponed(flights)
        self.flights.detach(flights[~is_postponed])
        self.queries.hasten(flights[is_postponed], now)
        self.totals.count_invalidations(origin, keys.size)
        return forgotten
