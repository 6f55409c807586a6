"""Query table: the queries of one dimension, at the backend or parked for a retry.

Decides which query goes next, and whether and when a failed one is retried; sends nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa

from lookup_core.backoff import NEVER, Backoff, jittered
from lookup_core.compatibility import concat_batches
from lookup_core.deadlines import Deadlines, earliest
from lookup_core.dimension.batcher import Batcher
from lookup_core.dimension.dimension_events import FetchedRows, QueryResult
from lookup_core.dimension.flight_rows import Numbers
from lookup_core.dimension.flight_table import BatchId, FlightTable, PostponedKeys, Waiters
from lookup_core.dimension.waiting_lookups import WaitingLookups
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import Hashes, KeyId
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import OnMissingSettings, RetrySettings


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
    on_missing: OnMissingSettings | None = None  # the retries that `misses` counts towards
    hastened_from: float | None = None  # when its attempt was due, before a change hastened it

    @property
    def tries(self) -> int:
        """The number of attempts for its keys, this one included."""
        return 1 + self.has_lost_connection + self.failures + self.misses


class QueryTable:
    """Queries by id; `now` is monotonic seconds. Ends the flights that no lookup waits for.

    Retries: a connection that broke is replaced at once, the first time. A batch with a refused
    value is halved until each refused key is alone: less than two queries for each key. While the
    breaker is open, a query without attempts left waits for it: an outage is not the query's fault.
    All other retries follow the settings. Every retry but those of halves takes from the budget.
    """

    def __init__(
        self, flights: FlightTable, batcher: Batcher, guard: BackendGuard, *, retry: RetrySettings
    ) -> None:
        self._flights = flights
        self._batcher = batcher
        self._guard = guard
        self._configured = retry.on_missing
        self._on_failure = Backoff(
            max_retries=retry.max_retries,
            initial_s=retry.initial_s,
            max_s=retry.max_s,
            multiplier=retry.multiplier,
        )
        self._ids = count(1)
        self._held_until: float | None = None  # the first load, at the latest; None: no wait
        self._is_new_first = False  # new and parked queries take turns
        self._at_backend: dict[BatchId, Query] = {}
        self._parked: dict[BatchId, Query] = {}
        self._retries: Deadlines[BatchId] = Deadlines()  # of the parked queries

    @property
    def in_flight(self) -> int:
        """The number of queries at the backend."""
        return len(self._at_backend)

    def hold_until(self, at: float) -> None:
        """Start no query until `release`, at the latest until `at`."""
        self._held_until = at

    def release(self) -> None:
        """Start queries again; a no-op if none are held."""
        self._held_until = None

    def is_held(self, now: float) -> bool:
        """Whether queries wait for the first load."""
        return self._held_until is not None and now < self._held_until

    def next_query(self, now: float, *, is_local: bool = False) -> Query | None:
        """A query that is at the backend from now on; None without a slot, or if none is due.

        The rate does not limit queries that a loaded table answers (`is_local`).
        """
        if self.is_held(now):
            return None
        self.release()
        if not self._guard.has_slot(self.in_flight):
            return None
        if not is_local and self._guard.next_query_at(now) > now:
            return None
        self._is_new_first = not self._is_new_first
        if self._is_new_first:
            return self._start(now) or self._restart(now)
        return self._restart(now) or self._start(now)

    def next_due(self, *, is_local: bool = False) -> float | None:
        """The time of the next query; None without a slot: then another event comes first."""
        if self._held_until is not None:
            return self._held_until
        if not self._guard.has_slot(self.in_flight):
            return None
        due_at = earliest(self._batcher.next_deadline(), self._retries.earliest())
        return due_at if due_at is None or is_local else self._guard.next_query_at(due_at)

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
            retry_at = now if len(query.flights) > 1 else NEVER
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

    def detach_older(self, key_ids: Sequence[KeyId], sent_until: float) -> None:
        """Let no lookup join the flights of these keys in queries that were sent until then."""
        older = [each.id for each in self._at_backend.values() if each.sent_at <= sent_until]
        if older:
            self._flights.detach_in(older, key_ids)

    def missing_retry_at(self, query: Query, on_missing: OnMissingSettings, now: float) -> float:
        """The time of the next attempt for the missing keys of a query, or NEVER.

        An attempt that a change hastened is not counted: it leaves the former time as it is.
        Without jitter: the delay says how late a row may arrive, and it relieves no congestion.
        """
        is_counted = query.on_missing == on_missing
        if is_counted and query.hastened_from is not None:
            return max(query.hastened_from, now)
        misses = query.misses if is_counted else 0
        return now + on_missing.delay_s if misses < on_missing.max_retries else NEVER

    def is_last_try(self, query: Query) -> bool:
        """Whether the dimension's own retries allow no other attempt for missing keys.

        Other retries of single channels do not count: their attempts follow other delays.
        """
        return self.missing_retry_at(query, self._configured, 0.0) == NEVER

    def postponed_keys(
        self,
        query: Query,
        result: QueryResult,
        waiters: Waiters,
        *,
        waiting: WaitingLookups,
        now: float,
    ) -> list[PostponedKeys]:
        """The keys of a result that lookups want to have read again, by their retries.

        Lookups whose deadline precedes the next attempt get the result.
        """
        patient: dict[OnMissingSettings, PostponedKeys] = {}
        for lookup_id, (positions, ordinals) in waiters.items():
            lookup = waiting.get(lookup_id)
            if lookup.on_missing is None:
                continue
            retry_at = self.missing_retry_at(query, lookup.on_missing, now)
            retry_at = self._guard.next_query_at(retry_at)
            is_missing = result.is_missing(lookup.on_missing.retry_if)[ordinals]
            if lookup.deadline_s > retry_at and is_missing.any():
                new = PostponedKeys(lookup.on_missing, retry_at, {})
                keys = patient.setdefault(lookup.on_missing, new)
                keys.waiters[lookup_id] = positions[is_missing], ordinals[is_missing]
        return list(patient.values())

    def retry_missing(self, query: Query, keys: PostponedKeys, waiting: WaitingLookups) -> None:
        """Park the postponed keys of a query that has its result.

        They get a new query, so that a late result of the old one is not taken for its result.
        """
        postponed = self._flights.postpone(query.flights, keys)
        for lookup_id, waiters in postponed.waiters.items():
            waiting.add_waiters(lookup_id, waiters, self._flights)
        if not postponed.started.size:
            return
        is_counted = query.on_missing == keys.on_missing
        missed = self._part(query, postponed.ordinals, flights=postponed.started)
        missed.misses = query.misses + (query.hastened_from is None) if is_counted else 1
        missed.on_missing = keys.on_missing
        missed.hastened_from = None
        self._park(missed, keys.retry_at)

    def defer(self, query: Query, fetched: FetchedRows, now: float) -> FetchedRows:
        """Park the deferred keys of a query, for other queries at once; returns the others' rows.

        Each of those has as many keys as this one answers, or half of the deferred ones: a few
        large rows delay the others by a few queries. It is no retry.
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
        batch_id = BatchId(next(self._ids))
        flights = np.concatenate([run.flights for run in runs])
        self._flights.send(flights, batch_id)
        pieces = [run.source.take(pa.array(run.rows)) for run in runs]
        return self._sent(
            Query(batch_id, flights, concat_batches(pieces), sent_at=now), is_first=True
        )

    def _restart(self, now: float) -> Query | None:
        batch_id = self._retries.pop_due(now)
        if batch_id is None:
            return None
        query = self._parked.pop(batch_id)
        query.sent_at = now
        self._flights.restart(query.flights)
        return self._sent(query, is_first=False)

    def _sent(self, query: Query, *, is_first: bool) -> Query:
        self._guard.on_sent(query.sent_at, is_first=is_first)
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
        retry_at = self._guard.next_query_at(retry_at)
        if retry_at >= latest_s:
            return NEVER
        return retry_at if waits_for_breaker or self._guard.take_retry(now) else NEVER

    def _park(self, query: Query, retry_at: float) -> None:
        self._parked[query.id] = query
        self._retries.add(query.id, retry_at)

    def _park_parts(
        self, query: Query, ordinals: Numbers, retry_at: float, *, size: int = 1
    ) -> None:
        """Park keys of a query in two parts, or in parts of `size`; end keys without a lookup."""
        is_wanted = self._flights.is_wanted(query.flights[ordinals])
        self._flights.end(query.flights[ordinals[~is_wanted]])
        wanted = ordinals[is_wanted]
        size = max(1, size, (len(wanted) + 1) // 2)
        for start in range(0, len(wanted), size):
            self._park(self._part(query, wanted[start : start + size]), retry_at)

    def _hasten(self, query: Query, flights: Numbers, *, due_at: float, now: float) -> None:
        self.end(query.id)
        is_left = ~np.isin(query.flights, flights) & self._flights.is_wanted(query.flights)
        if is_left.any():
            self._park(self._part(query, np.flatnonzero(is_left)), due_at)
        part = self._part(query, np.flatnonzero(~is_left))
        part.hastened_from = due_at
        self._flights.hasten(part.flights, to=now)
        self._park(part, now)

    def _part(self, query: Query, ordinals: Numbers, *, flights: Numbers | None = None) -> Query:
        """Some keys of a query as another query, with these flights instead of its own."""
        part = replace(
            query,
            id=BatchId(next(self._ids)),
            flights=query.flights[ordinals] if flights is None else flights,
            keys=query.keys.take(pa.array(ordinals)),
        )
        self._flights.send(part.flights, part.id)
        return part

    def _is_wanted(self, query: Query) -> bool:
        return bool(self._flights.is_wanted(query.flights).any())


def answered_now(waiters: Waiters, postponed: Sequence[PostponedKeys]) -> Waiters:
    """The waiters of a query without those that wait for another attempt."""
    answered = dict(waiters)
    for keys in postponed:
        for lookup_id, (late, _) in keys.waiters.items():
            positions, ordinals = waiters[lookup_id]
            is_answered = ~np.isin(positions, late)
            answered[lookup_id] = positions[is_answered], ordinals[is_answered]
    return answered
