"""Queries of one dimension: at the backend, waiting for a retry, and which goes next."""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.batcher import Batcher, KeyRun
from lookup_core.dimension.deadlines import Deadlines
from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.protection.backend_guard import BackendGuard


@dataclass(slots=True)
class Bisection:
    """The search of one batch for the keys that the store refuses; shared by all its parts."""

    queries_left: int


@dataclass(slots=True, eq=False)
class Query:
    """One batch of keys through all its tries; failures and misses are counted apart."""

    id: BatchId
    flights: Numbers
    keys: pa.RecordBatch  # [flights] typed
    sent_at: float  # the last try; what it brings may be as old as that
    is_first_try: bool = True
    beside: int = 1  # how many queries were at the backend when it was sent, itself included
    losses: int = 0  # tries that ended with their connection
    failures: int = 0  # other tries that failed
    misses: int = 0  # tries that found no row for any of these keys
    bisection: Bisection | None = None  # since the store refused a value of the batch
    hastened_from: float | None = None  # when its next try would have been, had no row changed

    @property
    def tries(self) -> int:
        """How many there were of its keys, this one included."""
        return 1 + self.losses + self.failures + self.misses


class QueryTable:
    """Queries by id; how many may be at the backend is the guard's to say.

    Ends the flights of what nobody waits for.
    """

    def __init__(self, flights: FlightTable) -> None:
        self._flights = flights
        self._ids = count(1)
        self._at_backend: dict[BatchId, Query] = {}
        self._parked: dict[BatchId, Query] = {}
        self._retries: Deadlines[BatchId] = Deadlines()  # of those that are parked

    @property
    def in_flight(self) -> int:
        """How many are at the backend."""
        return len(self._at_backend)

    def start(self, runs: list[KeyRun], now: float) -> Query:
        """A new query at the backend."""
        batch_id = BatchId(next(self._ids))
        flights = np.concatenate([run.flights for run in runs])
        self._flights.send(flights, batch_id)
        pieces = [run.source.take(pa.array(run.rows)) for run in runs]
        query = Query(batch_id, flights, pa.concat_batches(pieces), sent_at=now)
        return self._sent(query)

    def restart_due(self, now: float) -> Query | None:
        """A parked query whose time has come, at the backend again."""
        batch_id = self._retries.pop_due(now)
        if batch_id is None:
            return None
        query = self._parked.pop(batch_id)
        query.sent_at, query.is_first_try = now, False
        self._flights.restart(query.flights)
        return self._sent(query)

    def at_backend(self, batch_id: BatchId) -> Query | None:
        """The query of this name; None if it is not at the backend (any more)."""
        return self._at_backend.get(batch_id)

    def askers(self, batch_id: BatchId) -> list[LookupId]:
        """Who waits for a query that is at the backend, each once; nobody does for another."""
        query = self._at_backend.get(batch_id)
        return [] if query is None else list(self._flights.waiters(query.flights))

    def end(self, batch_id: BatchId) -> bool:
        """Take a query out, wherever it is; False if it is gone already."""
        self._retries.discard(batch_id)
        query = self._at_backend.pop(batch_id, None) or self._parked.pop(batch_id, None)
        return query is not None

    def park(self, query: Query, retry_at: float) -> None:
        """Let a query leave the backend and wait for its next try."""
        self._add_parked(self._at_backend.pop(query.id), retry_at)

    def halve(self, query: Query, retry_at: float) -> None:
        """Part a query at the backend into two, parked until then; a single key stays as it is.

        Keys that nobody waits for any more are left out.
        """
        self._at_backend.pop(query.id)
        is_wanted = self._flights.is_wanted(query.flights)
        self._flights.end(query.flights[~is_wanted])
        wanted = np.flatnonzero(is_wanted)
        middle = (len(wanted) + 1) // 2
        for ordinals in (wanted[:middle], wanted[middle:]):
            if ordinals.size:
                self._add_parked(self._part(query, ordinals), retry_at)

    def split_off(self, query: Query, is_missed: npt.NDArray[np.bool_], retry_at: float) -> Query:
        """Part a query that landed from the keys that are asked again; those are parked.

        Their query is a new one with its own time: whatever still comes for the old one cannot be
        taken for its answer.
        """
        missed = self._part(query, np.flatnonzero(is_missed))
        missed.misses += query.hastened_from is None
        missed.hastened_from = None
        query.flights = query.flights[~is_missed]
        query.keys = query.keys.take(pa.array(np.flatnonzero(~is_missed)))
        self._add_parked(missed, retry_at)
        return missed

    def hasten(self, flights: Numbers, now: float) -> None:
        """Try keys again at once that wait for their rows; it is no try of theirs.

        Without a row they go on waiting for the time at which they are due now.
        """
        for batch_id in self._flights.batch_ids(flights):
            due_at = self._retries.get(batch_id)
            assert due_at is not None  # keys without a row are parked
            if due_at > now:
                self._hasten(self._parked[batch_id], flights, due_at=due_at, now=now)

    def next_retry(self) -> float | None:
        """When the next parked query is due."""
        return self._retries.earliest()

    def retry_at(self, batch_id: BatchId | None) -> float | None:
        """When this query is tried again; None if it is not parked."""
        return None if batch_id is None else self._retries.get(batch_id)

    def end_deserted(self, batch_ids: set[BatchId]) -> list[Query]:
        """Take out those that nobody waits for; returns those of them at the backend."""
        queries = [self._at_backend.get(name) or self._parked[name] for name in batch_ids]
        deserted = [query for query in queries if not self._is_wanted(query)]
        at_backend = [query for query in deserted if query.id in self._at_backend]
        for query in deserted:
            self.end(query.id)
            self._flights.end(query.flights)
        return at_backend

    def carried(self) -> list[Numbers]:
        """For tests: the flights of all queries."""
        queries = (*self._at_backend.values(), *self._parked.values())
        return [query.flights for query in queries]

    def check_invariants(self) -> None:
        """For tests: a query is in one place, and somebody waits for it."""
        assert not self._at_backend.keys() & self._parked.keys()
        for query in (*self._at_backend.values(), *self._parked.values()):
            assert self._is_wanted(query)
            assert len(query.flights) == query.keys.num_rows
            assert (self.retry_at(query.id) is None) == (query.id in self._at_backend)
        self._retries.check_invariants()
        assert len(self._retries) == len(self._parked)

    def _sent(self, query: Query) -> Query:
        self._at_backend[query.id] = query
        query.beside = len(self._at_backend)
        return query

    def _hasten(self, query: Query, flights: Numbers, *, due_at: float, now: float) -> None:
        self.end(query.id)
        is_left = ~np.isin(query.flights, flights) & self._flights.is_wanted(query.flights)
        if is_left.any():
            self._add_parked(self._part(query, np.flatnonzero(is_left)), due_at)
        part = self._part(query, np.flatnonzero(~is_left))
        part.hastened_from = due_at
        self._flights.restart(part.flights, at=now)
        self._add_parked(part, now)

    def _part(self, query: Query, ordinals: npt.NDArray[np.intp]) -> Query:
        part = replace(
            query,
            id=BatchId(next(self._ids)),
            flights=query.flights[ordinals],
            keys=query.keys.take(pa.array(ordinals)),
        )
        self._flights.send(part.flights, part.id)
        return part

    def _is_wanted(self, query: Query) -> bool:
        return bool(self._flights.is_wanted(query.flights).any())

    def _add_parked(self, query: Query, retry_at: float) -> None:
        self._parked[query.id] = query
        self._retries.add(query.id, retry_at)


@dataclass(slots=True)
class QueryTurns:
    """The queries of one dimension that are to be sent; `now` is monotonic seconds."""

    batcher: Batcher
    queries: QueryTable
    guard: BackendGuard
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
