"""The queries of one dimension: those at the backend, and those that wait for their next try.

A query holds one slot of the concurrency limit while it is at the backend, none while it is parked.
Does not choose keys: see `batcher`.
"""

from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from lookup_core.batcher import KeyRun
from lookup_core.flight_table import BatchId, Flight


@dataclass(slots=True, eq=False)
class Query:
    """One batch of keys through all its tries."""

    id: BatchId
    flights: list[Flight]
    keys: pa.RecordBatch  # [flights] typed
    attempts: int = 0
    retry_at: float = 0.0  # while parked

    @property
    def is_deserted(self) -> bool:
        """Whether nobody waits for any of its keys."""
        return not any(flight.waiters for flight in self.flights)


class QueryTable:
    """Queries by id; slots are those of `max_in_flight`."""

    def __init__(self, max_in_flight: int) -> None:
        self.limit = max_in_flight
        self._ids = count(1)
        self._at_backend: dict[BatchId, Query] = {}
        self._parked: dict[BatchId, Query] = {}

    @property
    def in_flight(self) -> int:
        """How many are at the backend."""
        return len(self._at_backend)

    @property
    def has_slot(self) -> bool:
        """Whether another one may go to the backend."""
        return len(self._at_backend) < self.limit

    def start(self, runs: list[KeyRun]) -> Query:
        """A new query at the backend."""
        batch_id = BatchId(next(self._ids))
        flights = [flight for run in runs for flight in run.flights]
        for flight in flights:
            flight.batch_id = batch_id
        pieces = [run.source.take(pa.array(run.rows)) for run in runs]
        return self._go(Query(batch_id, flights, pa.concat_batches(pieces)))

    def restart_due(self, now: float) -> Query | None:
        """A parked query whose time has come, at the backend again."""
        for query in self._parked.values():
            if query.retry_at <= now:
                del self._parked[query.id]
                return self._go(query)
        return None

    def end(self, batch_id: BatchId) -> Query | None:
        """Take a query out, wherever it is; None if it is gone already."""
        return self._at_backend.pop(batch_id, None) or self._parked.pop(batch_id, None)

    def park(self, query: Query, retry_at: float) -> None:
        """Let a query that was taken out wait for its next try."""
        query.retry_at = retry_at
        self._parked[query.id] = query

    def next_retry(self) -> float | None:
        """When the next parked query is due."""
        return min((query.retry_at for query in self._parked.values()), default=None)

    def deserted(self, batch_ids: set[BatchId]) -> list[BatchId]:
        """Those of the named queries that nobody waits for."""
        queries = {**self._at_backend, **self._parked}
        return [name for name in batch_ids if name in queries and queries[name].is_deserted]

    def _go(self, query: Query) -> Query:
        query.attempts += 1
        self._at_backend[query.id] = query
        return query
