"""Which query goes to the store next: new keys and further tries have turns.

So the search for a refused key, which is many small queries, delays nobody else for long. Sends
nothing, and does not choose keys: see `batcher`.
"""

from dataclasses import dataclass

from lookup_core.dimension.batcher import Batcher
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.protection.store_guard import StoreGuard


@dataclass(slots=True)
class QueryTurns:
    """The queries of one dimension that are to be sent; `now` is monotonic seconds."""

    batcher: Batcher
    queries: QueryTable
    guard: StoreGuard
    _is_new_first: bool = False

    def next_query(self, now: float) -> Query | None:
        """A query that is at the store from now on; None without a slot, or if none is due."""
        if not self.guard.has_slot(self.queries.in_flight):
            return None
        self._is_new_first = not self._is_new_first
        if self._is_new_first:
            return self._start(now) or self.queries.restart_due(now)
        return self.queries.restart_due(now) or self._start(now)

    def next_due(self) -> float | None:
        """When the next one is due; None without a slot: then an event comes first."""
        if not self.guard.has_slot(self.queries.in_flight):
            return None
        times = (self.batcher.next_deadline(), self.queries.next_retry())
        return min((time for time in times if time is not None), default=None)

    def _start(self, now: float) -> Query | None:
        runs = self.batcher.next_batch(now)
        if runs is None:
            return None
        self.guard.on_sent(now)
        return self.queries.start(runs, now)
