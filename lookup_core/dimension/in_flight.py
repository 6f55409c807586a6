"""Keys in flight of one dimension: lookups that wait, their flights, and the queries for them.

Decides what is queried when, and who gets a result. Sends nothing, and knows no cache.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa

from lookup_core.backoff import NEVER
from lookup_core.compatibility import concat_batches
from lookup_core.deadlines import Deadlines, earliest
from lookup_core.dimension.dimension_events import (
    BatchId,
    Delivery,
    FetchedRows,
    KeyGroup,
    LookupId,
    LookupRequest,
    QueryResult,
)
from lookup_core.dimension.flights import Flight, Flights, Mask, Positions, PostponedKeys
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.dimension.query import Query, RetryRules
from lookup_core.dimension.queued_keys import KeyQueue, KeyRun, QuerySize
from lookup_core.dimension.waiting_lookups import (
    Recipients,
    Served,
    WaitingLookup,
    WaitingLookups,
)
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import Hashes, KeyId
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import DimensionSettings, OnMissingSettings

# A tenth of the limit on waiting keys: few unwanted keys cost less than to look for them.
_MAX_UNWANTED_DIVISOR = 10


class InFlight:
    """Keys that are queued or being queried; `now` is monotonic seconds.

    Lookups, flights, queries and turns are correlated: they change through these methods only;
    what has a public name is for reading. Each flight is in the queue or in one query, at the
    backend or parked. Queued keys count towards the limit of waiting keys, wanted or not: they take
    memory.
    """

    def __init__(self, settings: DimensionSettings, guard: BackendGuard) -> None:
        self._settings = settings
        self._guard = guard
        self.rules = RetryRules(settings.retry, guard)
        self.on_missing = settings.retry.on_missing.or_none  # unless a channel has its own
        self._flights = Flights()
        self.queue = KeyQueue()
        self._size = QuerySize(settings.batch, timeout_s=settings.timeout_s)
        self.lookups = WaitingLookups()
        self._batch_ids = map(BatchId, count(1))
        self._queries: dict[BatchId, Query] = {}
        self._retries: Deadlines[BatchId] = Deadlines()  # the parked queries
        self.at_backend = 0  # all other queries
        self._held_until = -np.inf  # no query starts before
        self._is_new_first = False  # new and parked queries take turns

    # Lookups

    @property
    def waiting_keys(self) -> int:
        """The keys that count towards the limit of waiting keys."""
        return max(self.lookups.keys, len(self.queue))

    def join(
        self,
        request: LookupRequest,
        group: KeyGroup,
        *,
        on_missing: OnMissingSettings | None,
        read_after: float,
        now: float,
    ) -> int:
        """Let a lookup wait for keys; returns how many were in flight already.

        No query that was sent until `read_after` is joined.
        """
        if read_after > -np.inf:
            self._detach_older(group.keys.ids(), read_after)
        joined = self._flights.join(
            request.id,
            group.keys,
            positions=group.positions,
            deadline_s=request.deadline_s,
            on_missing=on_missing,
        )
        lookup = WaitingLookup(
            request.id,
            request.columns,
            request.deadline_s,
            waiters=joined.waiters,
            on_missing=on_missing,
            read_after=read_after,
            keys_left=len(joined.waiters),
        )
        self.lookups.start(lookup)
        if joined.started.size:
            rows = group.positions[joined.indices]
            run = KeyRun(joined.started, request.keys.columns, rows)
            self.queue.put(request.channel, run, now)
        return len(joined.waiters) - len(joined.started)

    def may_join(self, key_ids: Sequence[KeyId]) -> Mask:
        """Which keys are in flight for lookups without options, given the time."""
        return self._flights.may_join(key_ids, self.on_missing)

    def open_keys(self, lookup: WaitingLookup) -> tuple[Positions, list[KeyId]]:
        """The positions, and their keys, that a lookup still waits for."""
        return self._flights.left_open(lookup.id, lookup.waiters)

    def deliveries(self, answers: Sequence[Delivery]) -> list[Delivery]:
        """These answers, each with whether it is the last; their keys are not waited for."""
        deliveries = [
            replace(each, is_last=self.lookups.on_answer(each.lookup_id, each.answer.size))
            for each in answers
        ]
        for lookup_id in {each.lookup_id for each in answers}:
            if lookup_id not in self.lookups:
                continue
            lookup = self.lookups[lookup_id]
            # Forget answered keys where they are most of the keys.
            if 2 * lookup.keys_left < len(lookup.waiters):
                lookup.waiters = self._flights.open_waiters(lookup.id, lookup.waiters)
        return deliveries

    def remove(self, lookup_id: LookupId) -> list[Query]:
        """End a lookup whose caller has left; returns queries to cancel. A no-op for others."""
        if lookup_id not in self.lookups:
            return []
        lookup = self.lookups[lookup_id]
        self.lookups.end(lookup)
        return self.close([lookup])

    def close(self, lookups: Sequence[WaitingLookup]) -> list[Query]:
        """Close the waiters of ended lookups; returns the queries at the backend to cancel."""
        batch_ids = self._flights.leave({lookup.id: lookup.waiters for lookup in lookups})
        # While no query is sent, unwanted keys would add up and keep new keys out.
        max_unwanted = self._settings.max_waiting_keys // _MAX_UNWANTED_DIVISOR
        if len(self.queue) > 2 * self.lookups.keys + max_unwanted:
            self.queue.drop_unwanted(self._wanted)
        cancelled = []
        for batch_id in batch_ids:
            query = self._queries[batch_id]
            if not self._flights.is_wanted(query.flights).any():
                self.end(query)
                cancelled.append(query)
        return [query for query in cancelled if query.retry_at is None]

    # Queries

    def hold_queries(self, until: float) -> None:
        """Send no query before this time, as after the first load; -inf ends the hold."""
        self._held_until = until

    def is_held(self, now: float) -> bool:
        """Whether no query is sent yet."""
        return now < self._held_until

    def next_query_at(self, *, is_local: bool) -> float | None:
        """The time of the next query; None without a slot: then another event comes first.

        The rate does not limit queries that a loaded table answers (`is_local`).
        """
        if not self._guard.has_slot(self.at_backend):
            return None
        due_at = earliest(self._batch_due_at(), self._retries.earliest())
        if due_at is None:
            return None
        due_at = max(due_at, self._held_until)
        return due_at if is_local else self._guard.pace.next_at(due_at)

    def next_query(self, now: float, *, is_local: bool) -> Query | None:
        """A query that is at the backend from now on; None without a slot, or if none is due."""
        if self.is_held(now) or not self._guard.has_slot(self.at_backend):
            return None
        if not is_local and self._guard.pace.next_at(now) > now:
            return None
        self._is_new_first = not self._is_new_first
        if self._is_new_first:
            return self._start(now) or self._restart(now)
        return self._restart(now) or self._start(now)

    def query(self, batch_id: BatchId) -> Query | None:
        """The query of this id; None if it is not at the backend."""
        query = self._queries.get(batch_id)
        return query if query is not None and query.retry_at is None else None

    def waiting_for(self, query: Query) -> list[Served]:
        """The lookups that wait for a query, with their keys that it carries."""
        waiters = self._flights.waiters(query.flights)
        return [Served(self.lookups[each], *places) for each, places in waiters.items()]

    def on_fetched(self, query: Query, fetched: FetchedRows, now: float) -> FetchedRows:
        """Learn from the rows of a query; returns those of its keys that it goes on with.

        Deferred keys are parked, for other queries at once. Each of those has as many keys as this
        one answers, or half of the deferred ones: a few large rows delay the others by a few
        queries. It is no retry.
        """
        key_count, deferred = len(query.flights), fetched.deferred
        if deferred.size:
            answered = np.setdiff1d(np.arange(key_count), deferred)
            self._park_parts(query, deferred.astype(np.intp), now, size=len(answered))
            query.flights = query.flights[answered]
            query.keys = query.keys.take(pa.array(answered))
            fetched = fetched.without_deferred(key_count)
        rows = fetched.rows
        missing = max(len(query.flights) - rows.num_rows, 0)
        seconds = now - query.sent_at
        self._size.on_rows(rows.num_rows, rows.nbytes, missing=missing, seconds=seconds)
        return fetched

    def recipients(self, query: Query, result: QueryResult, now: float) -> Recipients:
        """Which lookups get a result now; the others, by their retries, want it read again.

        Lookups whose deadline precedes the next attempt get the result.
        """
        served, postponed = [], dict[OnMissingSettings, PostponedKeys]()
        for each in self.waiting_for(query):
            on_missing = each.lookup.on_missing
            if on_missing is None:
                served.append(each)
                continue
            retry_at = self.rules.missing_retry_at(query, on_missing, now)
            retry_at = self._guard.pace.next_at(retry_at)
            is_late = result.is_missing(on_missing.retry_if)[each.ordinals]
            if each.lookup.deadline_s <= retry_at or not is_late.any():
                served.append(each)
                continue
            late = each.select(is_late)
            keys = postponed.setdefault(on_missing, PostponedKeys(on_missing, retry_at, {}))
            keys.waiters[each.lookup.id] = late.positions, late.ordinals
            served.append(each.select(~is_late))
        return Recipients(served, list(postponed.values()))

    def may_keep(self, query: Query) -> tuple[Hashes, Mask]:
        """The hashes of a query's keys, and which rows no change has overtaken on their way."""
        return self._flights.hashes_and_joinable(query.flights)

    def key_ids(self, query: Query) -> list[KeyId]:
        """The keys of a query."""
        return self._flights.key_ids(query.flights)

    def end(self, query: Query, postponed: Sequence[PostponedKeys] = ()) -> None:
        """Remove a query and its flights, once its postponed keys are parked for a new query.

        The new one has another id, so that a late result of the old one is not taken for its own.
        """
        for keys in postponed:
            self._park_missing(query, keys)
        self._remove(query)
        self._flights.end(query.flights)

    def retry_failed(self, query: Query, code: ErrorCode, *, now: float, jitter: float) -> bool:
        """Park a failed query for its retry; False if there is none in time.

        Records the failure at the guard. After a refused value, and after a timeout, the query is
        parked in two halves: one of the keys, or their number, was too much.
        """
        if code is ErrorCode.TIMEOUT:
            self._size.on_timeout()
        latest_s = max(each.lookup.deadline_s for each in self.waiting_for(query))
        self._guard.on_failure(code, sent_at=query.sent_at, now=now)
        retry_at = self.rules.failed_retry_at(
            query, code, latest_s=latest_s, now=now, jitter=jitter
        )
        if retry_at == NEVER:
            return False
        self._remove(query)
        if code.is_of_one_key or code is ErrorCode.TIMEOUT:
            self._park_parts(query, np.arange(len(query.flights)), retry_at)
        else:
            self._park(query, retry_at)
        return True

    def flight(self, key_id: KeyId) -> Flight | None:
        """The flight of a key that lookups without options may join, given the time."""
        flight = self._flights.get(key_id, self.on_missing)
        if flight is None or flight.batch_id is None:
            return flight
        return replace(flight, retry_at=self._queries[flight.batch_id].retry_at)

    # Changes

    def on_removed_keys(self, hashes: Hashes | None) -> None:
        """Keep no row of these keys, or of all for None, that is being read, nor join its query."""
        self._flights.detach(self._flights.with_hashes(hashes))

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
            query = self._queries[batch_id]
            if query.retry_at is not None and query.retry_at > now:
                self._bring_forward(query, postponed, due_at=query.retry_at, now=now)

    def check_invariants(self) -> None:
        """For tests: the parts are consistent with each other."""
        for part in (self.lookups, self.queue, self._retries):
            part.check_invariants()
        carried = self.queue.flights()
        for query in self._queries.values():
            assert self._flights.is_wanted(query.flights).any()
            assert len(query.flights) == query.keys.num_rows
            assert self._retries.get(query.id) == query.retry_at
            carried.append(query.flights)
        assert len(self._queries) == self.at_backend + len(self._retries)
        self._flights.check_invariants(np.concatenate([np.zeros(0, np.intp), *carried]))
        for lookup in self.lookups.all():
            positions, _ = self.open_keys(lookup)
            assert len(set(positions.tolist())) == len(positions) == lookup.keys_left > 0
        assert len(self.lookups) or not len(self._flights)

    def _detach_older(self, key_ids: Sequence[KeyId], sent_until: float) -> None:
        """Let no lookup join the flights of these keys in queries that were sent until then."""
        older = [
            query.id
            for query in self._queries.values()
            if query.retry_at is None and query.sent_at <= sent_until
        ]
        if older:
            self._flights.detach_in(older, key_ids)

    def _batch_due_at(self) -> float | None:
        """The due time of the next batch, given a free slot; None if no key is queued."""
        if not len(self.queue):
            return None
        is_full = len(self.queue) >= self._size.max_keys
        linger_s = 0.0 if is_full else self._settings.batch.linger_s
        return self.queue.oldest_at + linger_s

    def _start(self, now: float) -> Query | None:
        due_at = self._batch_due_at()
        if due_at is None or now < due_at:
            return None
        runs = self.queue.take_batch(self._size.max_keys, self._wanted)
        if not runs:
            return None
        flights = np.concatenate([run.flights for run in runs])
        keys = concat_batches([run.source.take(pa.array(run.rows)) for run in runs])
        query = Query(next(self._batch_ids), flights, keys, sent_at=now)
        self._flights.send(flights, query.id)
        return self._sent(query, is_first=True)

    def _restart(self, now: float) -> Query | None:
        batch_id = self._retries.pop_due(now)
        if batch_id is None:
            return None
        query = self._queries[batch_id]
        query.sent_at, query.retry_at = now, None
        self._flights.restart(query.flights)
        return self._sent(query, is_first=False)

    def _sent(self, query: Query, *, is_first: bool) -> Query:
        self._guard.on_sent(query.sent_at, is_first=is_first)
        self._queries[query.id] = query
        self.at_backend += 1
        query.in_flight = self.at_backend
        return query

    def _park(self, query: Query, retry_at: float) -> None:
        self._queries[query.id] = query
        query.retry_at = retry_at
        self._retries.add(query.id, retry_at)

    def _remove(self, query: Query) -> None:
        del self._queries[query.id]
        if query.retry_at is None:
            self.at_backend -= 1
        self._retries.discard(query.id)

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

    def _park_missing(self, query: Query, keys: PostponedKeys) -> None:
        postponed = self._flights.postpone(query.flights, keys)
        for lookup_id, more in postponed.waiters.items():
            lookup = self.lookups[lookup_id]
            waiters = np.union1d(lookup.waiters, more)
            lookup.waiters = self._flights.open_waiters(lookup_id, waiters)
        if not postponed.started.size:
            return
        missed = self._part(query, postponed.ordinals, flights=postponed.started)
        if query.on_missing != keys.on_missing:
            missed.misses = 1
        elif query.due_without_change is None:
            missed.misses += 1
        missed.on_missing, missed.due_without_change = keys.on_missing, None
        self._park(missed, keys.retry_at)

    def _bring_forward(self, query: Query, flights: Numbers, *, due_at: float, now: float) -> None:
        """Query these flights of a parked query now, and its other keys when they are due."""
        self._remove(query)
        is_left = ~np.isin(query.flights, flights) & self._flights.is_wanted(query.flights)
        if is_left.any():
            self._park(self._part(query, np.flatnonzero(is_left)), due_at)
        part = self._part(query, np.flatnonzero(~is_left))
        part.due_without_change = due_at
        self._flights.postpone_to(part.flights, now)
        self._park(part, now)

    def _part(self, query: Query, ordinals: Numbers, *, flights: Numbers | None = None) -> Query:
        """Some keys of a query as another query, with these flights instead of its own."""
        part = replace(
            query,
            id=next(self._batch_ids),
            flights=query.flights[ordinals] if flights is None else flights,
            keys=query.keys.take(pa.array(ordinals)),
        )
        self._flights.send(part.flights, part.id)
        return part

    def _wanted(self, run: KeyRun) -> KeyRun:
        """The keys of a run that some lookup waits for; ends the flights of the others."""
        is_wanted = self._flights.is_wanted(run.flights)
        if is_wanted.all():
            return run
        self._flights.end(run.flights[~is_wanted])
        return run.select(is_wanted)
