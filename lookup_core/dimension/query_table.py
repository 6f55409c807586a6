"""Query table: the queries of one dimension, at the backend or parked for a retry.

Decides which query goes next, and whether and when a failed one is retried; sends nothing.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.backoff import NEVER, Backoff, jittered
from lookup_core.compatibility import concat_batches
from lookup_core.dimension.batcher import Batcher
from lookup_core.dimension.deadlines import Deadlines
from lookup_core.dimension.dimension_events import NO_ROW, FetchedRows, QueryResult
from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId, Numbers, Waiters
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import Hashes
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import RetrySettings

_MIN_BISECTION_QUERIES = 64  # enough to find every refused key among 32


@dataclass(frozen=True, slots=True)
class PostponedKeys:
    """Keys without a row that wait for another attempt, and the lookups that wait with them.

    Lookups whose deadline precedes that attempt get `missing` now.
    """

    lookups: AbstractSet[LookupId]
    is_postponed: npt.NDArray[np.bool_]  # [keys of the query]
    retry_at: float  # or NEVER

    @classmethod
    def of_missing(
        cls,
        result: QueryResult,
        waiters: Waiters,
        *,
        patient: AbstractSet[LookupId],
        retry_at: float,
    ) -> "PostponedKeys":
        """The keys without a row that the patient lookups wait for."""
        is_wanted = np.zeros(len(result.row_of), np.bool_)
        for lookup_id in patient:
            _, ordinals = waiters[lookup_id]
            is_wanted[ordinals] = True
        return cls(patient, is_wanted & (result.row_of == NO_ROW), retry_at)

    def answered_now(self, waiters: Waiters) -> Waiters:
        """The waiters without those that wait for the other attempt."""
        answered = dict(waiters)
        for lookup_id in self.lookups:
            positions, ordinals = waiters[lookup_id]
            is_answered = ~self.is_postponed[ordinals]
            answered[lookup_id] = positions[is_answered], ordinals[is_answered]
        return answered


@dataclass(slots=True)
class Bisection:
    """The search of one batch for the keys that the backend refuses; shared by all its parts."""

    queries_left: int


@dataclass(slots=True, eq=False)
class Query:
    """One batch of keys through all its attempts; failures and misses are counted separately."""

    id: BatchId
    flights: Numbers
    keys: pa.RecordBatch  # [flights] typed
    sent_at: float  # the last attempt; its rows may be as old as that
    in_flight: int = 1  # the queries at the backend when it was sent, itself included
    has_lost_connection: bool = False  # in its first such attempt, which is no failure
    failures: int = 0  # all other failed attempts
    misses: int = 0  # attempts that found no row for any of these keys
    bisection: Bisection | None = None  # since the backend refused a value of the batch
    hastened_from: float | None = None  # when its attempt was due, before a change hastened it

    @property
    def tries(self) -> int:
        """The number of attempts for its keys, this one included."""
        return 1 + self.has_lost_connection + self.failures + self.misses


class QueryTable:
    """Queries by id; `now` is monotonic seconds. Ends the flights that no lookup waits for.

    Retries: a connection that broke is replaced at once, the first time. A batch with a refused
    value is halved, in at most as many queries as it has keys (or 64). While the breaker is open,
    a query without attempts left waits for it: an outage is not the query's fault. All other
    retries follow the settings. Every retry but those of a bisection takes from the budget.
    """

    def __init__(
        self, flights: FlightTable, batcher: Batcher, guard: BackendGuard, *, retry: RetrySettings
    ) -> None:
        self._flights = flights
        self._batcher = batcher
        self._guard = guard
        on_missing = retry.on_missing
        self._on_failure = Backoff(
            max_retries=retry.max_retries,
            initial_s=retry.initial_s,
            max_s=retry.max_s,
            multiplier=retry.multiplier,
        )
        # Without jitter: the delay says how late a row may arrive, and it relieves no congestion.
        self._on_missing = Backoff(
            max_retries=on_missing.max_retries,
            initial_s=on_missing.delay_s,
            max_s=on_missing.delay_s,
        )
        self._ids = count(1)
        self._is_new_first = False  # new and parked queries take turns
        self._at_backend: dict[BatchId, Query] = {}
        self._parked: dict[BatchId, Query] = {}
        self._retries: Deadlines[BatchId] = Deadlines()  # of the parked queries

    @property
    def in_flight(self) -> int:
        """The number of queries at the backend."""
        return len(self._at_backend)

    def next_query(self, now: float) -> Query | None:
        """A query that is at the backend from now on; None without a slot, or if none is due."""
        if not self._guard.has_slot(self.in_flight):
            return None
        self._is_new_first = not self._is_new_first
        if self._is_new_first:
            return self._start(now) or self._restart(now)
        return self._restart(now) or self._start(now)

    def next_due(self) -> float | None:
        """The time of the next query; None without a slot: then another event comes first."""
        if not self._guard.has_slot(self.in_flight):
            return None
        times = (self._batcher.next_deadline(), self._retries.earliest())
        return min((time for time in times if time is not None), default=None)

    def at_backend(self, batch_id: BatchId) -> Query | None:
        """The query of this id; None if it is not at the backend."""
        return self._at_backend.get(batch_id)

    def end(self, batch_id: BatchId) -> None:
        """Remove a query, at the backend or parked."""
        self._retries.discard(batch_id)
        self._at_backend.pop(batch_id, None)
        self._parked.pop(batch_id, None)

    def retry_failed(
        self, query: Query, code: ErrorCode, *, latest_s: float, now: float, jitter: float
    ) -> bool:
        """Park a failed query for its retry; False if there is none before `latest_s`.

        Records the failure at the guard. After a refused value, and after a timeout, the query is
        parked in two halves: one of the keys, or their number, was too much.
        """
        self._guard.on_failure(code, sent_at=query.sent_at, now=now)
        if code.is_of_one_key:
            retry_at = now if _may_halve(query) else NEVER
        else:
            retry_at = self._retry_time(query, code, latest_s=latest_s, now=now, jitter=jitter)
        if retry_at == NEVER:
            return False
        del self._at_backend[query.id]
        if code.is_of_one_key or code is ErrorCode.TIMEOUT:
            self._park_parts(query, np.arange(len(query.flights)), retry_at)
        else:
            self._park(query, retry_at)
        return True

    def missing_retry_at(self, query: Query, now: float) -> float:
        """The time of the next attempt for the missing keys of a query, or NEVER.

        An attempt that a change hastened is not counted: it leaves the former time as it is.
        """
        if query.hastened_from is not None:
            return max(query.hastened_from, now)
        if not self._on_missing.can_retry(query.misses + 1):
            return NEVER
        return now + self._on_missing.delay_s(query.misses + 1)

    def retry_missing(self, query: Query, postponed: PostponedKeys) -> None:
        """Split the postponed keys off a query that has its result, and park them.

        They get a new query, so that a late result of the old one is not taken for its result.
        """
        is_missed = postponed.is_postponed
        missed = self._part(query, np.flatnonzero(is_missed))
        missed.misses += query.hastened_from is None
        missed.hastened_from = None
        query.flights = query.flights[~is_missed]
        query.keys = query.keys.take(pa.array(np.flatnonzero(~is_missed)))
        self._park(missed, postponed.retry_at)
        self._flights.postpone(missed.flights, postponed.lookups, until=postponed.retry_at)

    def defer(self, query: Query, fetched: FetchedRows, now: float) -> FetchedRows:
        """Park the deferred keys of a query, for other queries at once; returns the others' rows.

        Each of those has at most as many keys as this one answers. It is no retry.
        """
        key_count, deferred = len(query.flights), fetched.deferred
        if not deferred.size:
            return fetched
        answered = np.setdiff1d(np.arange(key_count), deferred)
        self._park_parts(query, deferred.astype(np.intp), now, size=len(answered))
        query.flights = query.flights[answered]
        query.keys = query.keys.take(pa.array(answered))
        return fetched.without_deferred(key_count)

    def on_changed_keys(self, hashes: Hashes, now: float) -> None:
        """Detach the flights of changed keys, and query postponed keys at once.

        The latter counts as no attempt. Without a row these keys wait for the time at which they
        are due now.
        """
        flights = self._flights.with_hashes(hashes)
        is_postponed = self._flights.is_postponed(flights)
        self._flights.detach(flights[~is_postponed])
        postponed = flights[is_postponed]
        for batch_id in self._flights.batch_ids(postponed):
            due_at = self._retries.get(batch_id)
            assert due_at is not None  # postponed keys are parked
            if due_at > now:
                self._hasten(self._parked[batch_id], postponed, due_at=due_at, now=now)

    def retry_at(self, batch_id: BatchId | None) -> float | None:
        """The time of this query's retry; None if it is not parked."""
        return None if batch_id is None else self._retries.get(batch_id)

    def end_unwanted(self, batch_ids: set[BatchId]) -> list[Query]:
        """Remove those that no lookup waits for; returns those of them at the backend."""
        queries = [self._at_backend.get(name) or self._parked[name] for name in batch_ids]
        unwanted = [query for query in queries if not self._is_wanted(query)]
        at_backend = [query for query in unwanted if query.id in self._at_backend]
        for query in unwanted:
            self.end(query.id)
            self._flights.end(query.flights)
        return at_backend

    def carried(self) -> list[Numbers]:
        """For tests: the flights of all queries."""
        return [query.flights for query in (*self._at_backend.values(), *self._parked.values())]

    def check_invariants(self) -> None:
        """For tests: each query is in one place, and some lookup waits for it."""
        assert not self._at_backend.keys() & self._parked.keys()
        for query in (*self._at_backend.values(), *self._parked.values()):
            assert self._is_wanted(query)
            assert len(query.flights) == query.keys.num_rows
            assert (self.retry_at(query.id) is None) == (query.id in self._at_backend)
        self._retries.check_invariants()
        assert len(self._retries) == len(self._parked)

    def _start(self, now: float) -> Query | None:
        runs = self._batcher.next_batch(now)
        if runs is None:
            return None
        self._guard.on_sent(now)
        batch_id = BatchId(next(self._ids))
        flights = np.concatenate([run.flights for run in runs])
        self._flights.send(flights, batch_id)
        pieces = [run.source.take(pa.array(run.rows)) for run in runs]
        return self._sent(Query(batch_id, flights, concat_batches(pieces), sent_at=now))

    def _restart(self, now: float) -> Query | None:
        batch_id = self._retries.pop_due(now)
        if batch_id is None:
            return None
        query = self._parked.pop(batch_id)
        query.sent_at = now
        self._flights.restart(query.flights)
        return self._sent(query)

    def _sent(self, query: Query) -> Query:
        self._at_backend[query.id] = query
        query.in_flight = len(self._at_backend)
        return query

    def _retry_time(
        self, query: Query, code: ErrorCode, *, latest_s: float, now: float, jitter: float
    ) -> float:
        waits_for_breaker = code.is_retryable and self._guard.is_open
        if code is ErrorCode.CONNECTION_LOST and not query.has_lost_connection:
            query.has_lost_connection = True
            retry_at = now
        else:
            query.failures += 1
            if waits_for_breaker:
                retry_at = now  # when the breaker closes
            elif code.is_retryable and self._on_failure.can_retry(query.failures):
                delay_s = self._on_failure.delay_s(query.failures)
                retry_at = now + jittered(delay_s, jitter)
            else:
                return NEVER
        if retry_at >= latest_s:
            return NEVER
        return retry_at if waits_for_breaker or self._guard.take_retry(now) else NEVER

    def _park(self, query: Query, retry_at: float) -> None:
        self._parked[query.id] = query
        self._retries.add(query.id, retry_at)

    def _park_parts(
        self, query: Query, ordinals: Numbers, retry_at: float, *, size: int | None = None
    ) -> None:
        """Park keys of a query in parts of this size, or in two; end keys without a lookup."""
        is_wanted = self._flights.is_wanted(query.flights[ordinals])
        self._flights.end(query.flights[ordinals[~is_wanted]])
        wanted = ordinals[is_wanted]
        size = max(1, (len(wanted) + 1) // 2 if size is None else size)
        for start in range(0, len(wanted), size):
            self._park(self._part(query, wanted[start : start + size]), retry_at)

    def _hasten(self, query: Query, flights: Numbers, *, due_at: float, now: float) -> None:
        self.end(query.id)
        is_left = ~np.isin(query.flights, flights) & self._flights.is_wanted(query.flights)
        if is_left.any():
            self._park(self._part(query, np.flatnonzero(is_left)), due_at)
        part = self._part(query, np.flatnonzero(~is_left))
        part.hastened_from = due_at
        self._flights.restart(part.flights, at=now)
        self._park(part, now)

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


def _may_halve(query: Query) -> bool:
    if len(query.flights) == 1:
        return False
    if query.bisection is None:
        query.bisection = Bisection(max(len(query.flights), _MIN_BISECTION_QUERIES))
    query.bisection.queries_left -= 2
    return query.bisection.queries_left >= 0
