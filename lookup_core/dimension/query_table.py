"""The queries of one dimension: those at the backend, and those that wait for their next try.

A query holds one slot of the concurrency limit while it is at the backend, none while it is parked.
Does not choose keys: see `batcher`.
"""

from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from lookup_core.dimension.batcher import KeyRun
from lookup_core.dimension.flight_table import BatchId, Flight


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

    def at_backend(self, batch_id: BatchId) -> Query | None:
        """The query of this name; None if it is not at the backend (any more)."""
        return self._at_backend.get(batch_id)

    def end(self, batch_id: BatchId) -> bool:
        """Take a query out, wherever it is; False if it is gone already."""
        query = self._at_backend.pop(batch_id, None) or self._parked.pop(batch_id, None)
        return query is not None

    def park(self, query: Query, retry_at: float) -> None:
        """Let a query leave the backend and wait for its next try."""
        del self._at_backend[query.id]
        query.retry_at = retry_at
        self._parked[query.id] = query

    def next_retry(self) -> float | None:
        """When the next parked query is due."""
        return min((query.retry_at for query in self._parked.values()), default=None)

    def end_deserted(self, batch_ids: set[BatchId]) -> list[BatchId]:
        """Take out those that nobody waits for; returns which of them are at the backend."""
        queries = [self._at_backend.get(name) or self._parked[name] for name in batch_ids]
        deserted = [query.id for query in queries if query.is_deserted]
        at_backend = [name for name in deserted if name in self._at_backend]
        for name in deserted:
            self.end(name)
        return at_backend

    def check_invariants(self) -> None:
        """For tests: slots are kept, a query is in one place, and somebody waits for it."""
        assert len(self._at_backend) <= self.limit
        assert not self._at_backend.keys() & self._parked.keys()
        for query in (*self._at_backend.values(), *self._parked.values()):
            assert not query.is_deserted
            assert len(query.flights) == query.keys.num_rows
            assert not any(flight.has_landed for flight in query.flights)

    def _go(self, query: Query) -> Query:
        query.attempts += 1
        self._at_backend[query.id] = query
        return query
