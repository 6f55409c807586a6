"""All that is decided for one dimension: what is answered now, fetched, retried, given up.

A pure state after the model of dask's worker state machine: events come in with `now`, what to do
goes out as values. Owns no clock, task or socket; the engine sleeps until `next_deadline`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, rowless_answer
from lookup_core.cache.cached_answers import cached_answers
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension.askable_keys import askable_keys, unaskable_answers
from lookup_core.dimension.batcher import Batcher, KeyRun
from lookup_core.dimension.dimension_events import Delivery, Effects, LookupRequest, QueryOrder
from lookup_core.dimension.explanation import Explanation, explain_asked, explain_unaskable
from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId
from lookup_core.dimension.landing import Crash, Landing, Waiters, waiters_by_lookup
from lookup_core.dimension.postponement import Postponement
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.retry_policy import NEVER, RetryPolicy
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.keys.canonical_keys import CanonicalKeys, canonical_keys
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.outcome import Outcome
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin

_OVERLOAD_RETRY_S = 1.0


class DimensionState:
    """One dimension's cache, flights, queue and queries; `now` is monotonic seconds.

    `seed` makes the hashes of byte keys unpredictable for whoever chooses the keys.
    """

    def __init__(
        self, settings: DimensionSettings, schema: DimensionSchema, *, seed: int = 0
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._seed = seed
        self._cache = RowCache(schema, settings.cache)
        self._flights = FlightTable()
        self._batcher = Batcher(settings.batch)
        self._queries = QueryTable(settings.batch.max_in_flight)
        self._waiting = WaitingLookups()
        self._retry = RetryPolicy(settings.retry)
        self._outcomes = dict.fromkeys(Outcome, 0)
        self._coalesced = 0
        self._retries = 0
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)

    def submit(self, request: LookupRequest, now: float) -> list[Answer]:
        """Answer what can be answered now; the other keys wait, and come as deliveries.

        Raises Overloaded, before any change, when too many keys wait already.
        """
        positions = askable_keys(request.keys)
        keys = self._canonical(request.keys.columns, positions)
        probe = self._cache.probe(keys, now)
        is_miss = ~(probe.is_row | probe.is_missing)
        self._admit(int(is_miss.sum()))
        known = cached_answers(self._cache, probe, positions=positions, columns=request.columns)
        answers = [*unaskable_answers(request.keys), *known]
        if is_miss.any():
            missed = np.flatnonzero(is_miss).astype(np.int32)
            self._wait(request, positions[missed], keys=keys.take(missed), now=now)
        self._count(answers)
        return answers

    def next_order(self, now: float) -> QueryOrder | None:
        """A query to send, if a slot is free and one is due."""
        if not self._queries.has_slot:
            return None
        query = self._queries.restart_due(now) or self._start_query(now)
        if query is None:
            return None
        # Not less for those who wait less long: a newcomer with more time may join. When all have
        # given up, the query is cancelled.
        return QueryOrder(query.id, query.keys, self._settings.timeout_s)

    def on_rows(
        self,
        batch_id: BatchId,
        *,
        ordinals: npt.NDArray[np.int32],
        rows: pa.RecordBatch,
        now: float,
    ) -> Effects:
        """A query brought its rows; those that no invalidation overtook are kept.

        Keys without a row are asked again, if tries and time are left; the others are answered.
        What Arrow raises, for rows that it cannot hold, comes before anything is answered.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        age_ms = int((now - query.sent_at) * 1000)
        landing = Landing.of_rows(len(query.flights), ordinals, rows=rows, age_ms=age_ms)
        waiters = waiters_by_lookup(query.flights)
        retry_at = self._retry.after_miss(query.misses + 1, now=now)
        patient = self._waiting.lasting_beyond(retry_at, waiters)
        postponed = Postponement.of_missing(landing, waiters, patient=patient)
        answers = self._answers(landing, postponed.answered_now(waiters))
        self._keep(query, landing, is_last_try=retry_at == NEVER, now=now)
        self._postpone(query, postponed, retry_at)
        return self._land(query, answers)

    def on_failure(
        self, batch_id: BatchId, *, code: ErrorCode, now: float, jitter: float
    ) -> Effects:
        """A query failed: park it for another try, or tell all that wait. Keeps nothing.

        `jitter` in [0, 1) spreads the delay over its upper half.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        query.failures += 1
        retry_at = self._retry.after_failure(query.failures, code=code, now=now, jitter=jitter)
        if retry_at < self._waiting.latest_deadline(query.flights):
            self._retries += 1
            self._queries.park(query, retry_at)
            return Effects()
        return self._land(query, self._answers(Crash(code), waiters_by_lookup(query.flights)))

    def leave(self, lookup_id: LookupId) -> Effects:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        lookup = self._waiting.remove(lookup_id)
        return Effects() if lookup is None else Effects(cancelled=self._desert([lookup]))

    def expire(self, now: float) -> Effects:
        """End what has waited for its whole time with the outcome `timeout`."""
        expired = self._waiting.pop_expired(now)
        deliveries = []
        for lookup in expired:
            positions = np.array(list(lookup.flights), np.int32)
            answer = rowless_answer(positions, Outcome.TIMEOUT, error=ErrorCode.TIMEOUT)
            deliveries.append(Delivery(lookup.id, answer, is_last=True))
        self._count([delivery.answer for delivery in deliveries])
        return Effects(deliveries, self._desert(expired))

    def count_timed_out(self, keys: int) -> None:
        """So many keys were not asked for in their time: others were before them."""
        self._outcomes[Outcome.TIMEOUT] += keys

    def next_deadline(self) -> float | None:
        """When `expire` or `next_order` will have something to do without another event."""
        times = [self._waiting.next_deadline()]
        if self._queries.has_slot:
            times += [self._batcher.next_deadline(), self._queries.next_retry()]
        return min((time for time in times if time is not None), default=None)

    def invalidate(self, keys: TypedKeys | None, origin: InvalidationOrigin) -> int:
        """Forget keys (all for None), and keep nothing of what is being read of them now.

        Returns how many cached entries went.
        """
        if keys is None:
            self._flights.detach_all()
            count = self._cache.clear()
        else:
            canonical = self._canonical(keys.columns, askable_keys(keys))
            self._flights.detach(canonical.ids())
            count = self._cache.invalidate(canonical)
        self._invalidations[origin] += count if keys is None else keys.size
        return count

    def explain(self, keys: TypedKeys, now: float) -> list[Explanation]:
        """Where the answer to each key would come from; counts as no visit."""
        explained = [explain_unaskable(keys, position) for position in range(keys.size)]
        positions = askable_keys(keys)
        canonical = self._canonical(keys.columns, positions)
        probe = self._cache.peek(canonical, now)
        flights = [self._flights.get(key_id) for key_id in canonical.ids()]
        retries = [self._queries.retry_at(each.batch_id) if each else None for each in flights]
        asked = explain_asked(probe, flights, retries=retries, now=now)
        for position, explanation in zip(positions, asked, strict=True):
            explained[position] = explanation
        return explained

    def statistics(self, now: float) -> DimensionStatistics:
        """Levels and totals now."""
        return DimensionStatistics(
            outcomes=dict(self._outcomes),
            coalesced_keys=self._coalesced,
            retries=self._retries,
            invalidations=dict(self._invalidations),
            waiting_keys=self._waiting.keys,
            queued_keys=len(self._batcher),
            queries_in_flight=self._queries.in_flight,
            concurrency_limit=self._queries.limit,
            oldest_row_age_s=self._cache.oldest_age_s(now),
            cache=self._cache.statistics(),
        )

    def check_invariants(self) -> None:
        """For tests."""
        self._cache.check_invariants()
        self._waiting.check_invariants()
        self._flights.check_invariants()
        self._batcher.check_invariants()
        self._queries.check_invariants()
        assert len(self._waiting) or not len(self._flights)

    def _canonical(
        self, columns: pa.RecordBatch, positions: npt.NDArray[np.int32]
    ) -> CanonicalKeys:
        if len(positions) < columns.num_rows:
            columns = columns.take(pa.array(positions))
        return canonical_keys(columns, seed=self._seed)

    def _admit(self, count: int) -> None:
        limit = self._settings.max_waiting_keys
        # Queued keys take memory until their turn, also when nobody waits for them any more.
        held = max(self._waiting.keys, len(self._batcher))
        if held + count > limit:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{held} keys wait for {self._settings.name}; at most {limit} may",
                retry_after_s=_OVERLOAD_RETRY_S,
            )

    def _wait(
        self,
        request: LookupRequest,
        positions: npt.NDArray[np.int32],
        *,
        keys: CanonicalKeys,
        now: float,
    ) -> None:
        places, deadline_s = positions.tolist(), request.deadline_s
        flights, new = self._flights.join(
            request.id, keys.ids(), positions=places, deadline_s=deadline_s
        )
        open_flights = dict(zip(places, flights, strict=True))
        self._waiting.add(WaitingLookup(request.id, request.columns, deadline_s, open_flights))
        self._coalesced += len(flights) - len(new)
        if new:
            run = KeyRun([flights[index] for index in new], request.keys.columns, positions[new])
            self._batcher.add(request.channel, run, now)

    def _start_query(self, now: float) -> Query | None:
        runs = self._batcher.next_batch(now)
        return None if runs is None else self._queries.start(runs, now)

    def _keep(self, query: Query, landing: Landing, *, is_last_try: bool, now: float) -> None:
        if self._settings.cache.mode is CacheMode.NONE:
            return
        may_keep = np.array([flight.may_keep for flight in query.flights])
        is_known = landing.is_known(is_last_try=is_last_try)
        kept = np.flatnonzero(may_keep & is_known).astype(np.int32)
        row_of = landing.row_of[kept]
        rows = landing.rows.take(pa.array(row_of[row_of >= 0]))
        keys = self._canonical(query.keys, kept)
        self._cache.fill(keys, row_of >= 0, rows=rows, read_at=query.sent_at, now=now)

    def _answers(self, landing: Landing | Crash, waiters: Waiters) -> list[tuple[LookupId, Answer]]:
        return [
            (lookup_id, answer)
            for lookup_id, (positions, ordinals) in waiters.items()
            for answer in landing.answers(positions, ordinals, self._waiting.get(lookup_id).columns)
        ]

    def _postpone(self, query: Query, postponed: Postponement, retry_at: float) -> None:
        if postponed.is_postponed.any():
            self._retries += 1
            missed = self._queries.split_off(query, postponed.is_postponed, retry_at)
            self._flights.postpone(missed.flights, postponed.lookups, until=retry_at)

    def _land(self, query: Query, answers: list[tuple[LookupId, Answer]]) -> Effects:
        self._queries.end(query.id)
        self._flights.land(query.flights)
        effects = Effects()
        for lookup_id, answer in answers:
            is_last = self._waiting.answer(lookup_id, answer.positions.tolist())
            effects.deliveries.append(Delivery(lookup_id, answer, is_last))
        self._count([answer for _, answer in answers])
        return effects

    def _desert(self, lookups: Sequence[WaitingLookup]) -> list[BatchId]:
        flights = {flight for lookup in lookups for flight in lookup.flights.values()}
        deserted = self._flights.leave({lookup.id for lookup in lookups}, flights)
        batch_ids = {flight.batch_id for flight in deserted if flight.batch_id is not None}
        return self._queries.end_deserted(batch_ids)

    def _count(self, answers: list[Answer]) -> None:
        for answer in answers:
            for outcome, count in enumerate(np.bincount(answer.outcomes, minlength=len(Outcome))):
                self._outcomes[Outcome(outcome)] += int(count)
