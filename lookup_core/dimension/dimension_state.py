"""State of one dimension: decides what is answered, fetched, retried and given up."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.cache.row_cache import Bookmark, Hit
from lookup_core.dimension.batcher import Batcher, ChannelId, KeyRun
from lookup_core.dimension.change_intake import ChangeIntake
from lookup_core.dimension.dimension_events import Delivery, Effects, LookupRequest, QueryOrder
from lookup_core.dimension.explanation import Explainer, Explanation
from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId, Waiters
from lookup_core.dimension.full_mode import FullMode
from lookup_core.dimension.held_lookups import WatermarkWait
from lookup_core.dimension.local_resolver import KeyGroup, LocalResolver
from lookup_core.dimension.query_results import QueryResult
from lookup_core.dimension.query_table import Query, QueryTable, QueryTurns
from lookup_core.dimension.retries import NEVER, FailedQueryRetries, MissingKeyRetries, RetryPolicy
from lookup_core.dimension.totals import Totals
from lookup_core.dimension.waiting_lookups import AdmissionLimit, WaitingLookup, WaitingLookups
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin
from lookup_core.table.full_table import FullTable

Share = tuple[LookupId, Answer]


@dataclass(frozen=True, slots=True)
class LookupShares:
    """The shares of one dimension's lookups; `now` is monotonic seconds."""

    flights: FlightTable
    waiting: WaitingLookups
    known: LocalResolver

    def of_rows(self, landing: QueryResult, waiters: Waiters) -> list[Share]:
        """A query's rows, for those who wait for its keys."""
        shares = []
        for lookup_id, (positions, ordinals) in waiters.items():
            columns = self.waiting.get(lookup_id).columns
            answers = [*landing.answers(positions, ordinals, columns)]
            shares += [(lookup_id, each) for each in self.known.with_default(answers, columns)]
        return shares

    def of_failure(self, query: Query, code: ErrorCode, now: float) -> list[Share]:
        """A query's error, or old rows in its place."""
        shares = []
        for lookup_id, (positions, ordinals) in self.flights.waiters(query.flights).items():
            key_ids = self.flights.key_ids(query.flights[ordinals])
            columns = self.waiting.get(lookup_id).columns
            answers = self.known.failed(key_ids, positions, columns=columns, code=code, now=now)
            shares += [(lookup_id, answer) for answer in answers]
        return shares

    def of_expired(
        self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float
    ) -> Iterator[tuple[Share, bool]]:
        """What lookups get whose time is over, and whether it is their last share."""
        for lookup in lookups:
            positions, key_ids = self.flights.left_open(lookup.id, lookup.waiters)
            columns = lookup.columns
            answers = self.known.failed(key_ids, positions, columns=columns, code=code, now=now)
            *before, last = [(lookup.id, answer) for answer in answers]
            yield from ((share, False) for share in before)
            yield last, True


_CHANNEL = ChannelId(-1)  # all of them take their turns as one channel


@dataclass(frozen=True, slots=True)
class BackgroundRefresh:
    """The lookups of one dimension for itself, which get no deliveries."""

    flights: FlightTable
    guard: BackendGuard
    room: AdmissionLimit
    timeout_s: float
    _ids: Iterator[int] = field(default_factory=lambda: count(-1, -1))  # all others are positive

    def lookup(
        self, request: LookupRequest, outdated: KeyGroup, now: float
    ) -> tuple[LookupRequest, KeyGroup] | None:
        """What to ask for these keys of a request: those that are not being read; None for none."""
        is_idle = ~self.flights.may_join(outdated.keys.ids())
        idle = np.flatnonzero(is_idle).astype(np.int32)
        if self.guard.is_open or not idle.size or not self.room.has_room(len(idle)):
            return None
        own_id, deadline_s = LookupId(next(self._ids)), now + self.timeout_s
        own = replace(request, id=own_id, channel=_CHANNEL, deadline_s=deadline_s)
        return own, KeyGroup(outdated.positions[idle], outdated.keys.take(idle))


_FENCE_S = 60.0  # how long changes are remembered at least, beyond the longest query


class DimensionState:
    """One dimension's cache, flights, queue and queries; `now` is monotonic seconds.

    `seed` makes the hashes of byte keys unpredictable for whoever chooses the keys. Raises
    BackendError when the default row does not fit the schema.
    """

    def __init__(
        self, settings: DimensionSettings, schema: DimensionSchema, *, seed: int = 0
    ) -> None:
        self._settings = settings
        self._known = LocalResolver(settings, schema, seed=seed)
        self._flights = FlightTable()
        self._totals = Totals()
        self._batcher = Batcher(settings.batch, self._flights)
        self._queries = QueryTable(self._flights)
        self._guard = BackendGuard(settings.batch.max_in_flight)
        self._waiting = WaitingLookups()
        self._shares = LookupShares(self._flights, self._waiting, self._known)
        self._turns = QueryTurns(self._batcher, self._queries, self._guard)
        self._room = AdmissionLimit(settings, self._waiting, self._batcher)
        retry = RetryPolicy(settings.retry)
        self._failed = FailedQueryRetries(retry, self._guard)
        self._missing = MissingKeyRetries(
            retry, self._waiting, self._queries, self._flights, self._totals
        )
        timeout_s = settings.timeout_s
        self._revalidation = BackgroundRefresh(self._flights, self._guard, self._room, timeout_s)
        fence = RecentChanges(age_s=max(_FENCE_S, 2 * timeout_s))
        self.changes = ChangeIntake(self._known, self._flights, self._queries, fence, self._totals)
        self.wait = WatermarkWait(self._known, settings.wait_for_dimension_s)
        self.whole: FullMode | None = None
        if isinstance(self._known.cache, FullTable):
            self.whole = FullMode(self._known, self._known.cache, fence)

    def submit(self, request: LookupRequest, now: float) -> list[Answer]:
        """Answer what can be answered now; the other keys wait, and come as deliveries.

        Raises Overloaded, before any change, when too many keys wait already.
        """
        known = self._known.look_up(request, now, is_store_down=self._guard.is_open)
        self._room.admit(len(known.unknown.positions))
        if known.unknown.positions.size:
            self._wait(request, known.unknown, now)
        outdated = known.outdated
        if outdated.positions.size and (own := self._revalidation.lookup(request, outdated, now)):
            self._wait(*own, now)
        self._totals.count_answers(known.answers)
        return known.answers

    def check_room(self, keys: int) -> None:
        """Raise Overloaded if so many keys more may not wait."""
        self._room.admit(keys)

    def hit(self, value: object, now: float) -> Hit | None:
        """The same for one key by its value, if its fresh row is cached; None for all else."""
        return self._totals.counted(self._known.hit(value, now))

    def revisit(self, bookmark: Bookmark, now: float) -> float | None:
        """The age of a row that was a hit and is one again; None if `hit` has to find out."""
        return self._totals.counted(self._known.revisit(bookmark, now))

    def next_order(self, now: float) -> QueryOrder | None:
        """A query to send, if a slot is free and one is due."""
        if self.whole is not None and self.whole.holds(now):
            return None
        query = self._turns.next_query(now)
        # Not less for those who wait less long: a newcomer with more time may join. When all have
        # given up, the query is cancelled.
        timeout_s = self._settings.timeout_s
        return None if query is None else QueryOrder(query.id, query.keys, timeout_s, query.tries)

    def askers(self, batch_id: BatchId) -> list[LookupId]:
        """Who waits for this query now; nobody, if it is not at the backend (any more)."""
        return self._queries.askers(batch_id)

    def on_rows(
        self,
        batch_id: BatchId,
        *,
        ordinals: npt.NDArray[np.int32],
        rows: pa.RecordBatch,
        snapshot: TableSnapshot | None = None,
        read_at: float | None = None,
        now: float,
    ) -> Effects:
        """A query brought its rows; those that no change has overtaken are kept.

        `snapshot` is what it saw, if the store can tell, `read_at` when, if before it was sent.
        Keys without a row are asked again, if tries and time are left; the others are answered.
        What Arrow raises, for rows that it cannot hold, comes before anything is answered.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        absent = max(len(query.flights) - rows.num_rows, 0)
        self._batcher.on_rows(rows.num_rows, rows.nbytes, absent=absent)
        age_ms = int((now - (query.sent_at if read_at is None else read_at)) * 1000)
        landing = QueryResult.of_rows(len(query.flights), ordinals, rows=rows, age_ms=age_ms)
        waiters = self._flights.waiters(query.flights)
        postponed = self._missing.postponed(query, landing, waiters, now=now)
        shares = self._shares.of_rows(landing, postponed.answered_now(waiters))
        may_keep = self.changes.may_keep(query, snapshot, now)
        is_last_try = postponed.is_last_try
        self._known.keep(query, landing, may_keep=may_keep, is_last_try=is_last_try, now=now)
        self._guard.on_success(query.sent_at, now, in_flight=query.beside)
        self._missing.postpone(query, postponed)
        return self._land(query, shares)

    def on_failure(
        self, batch_id: BatchId, *, code: ErrorCode, now: float, jitter: float
    ) -> Effects:
        """A query failed: let its keys wait for another try, or tell all that wait. Keeps nothing.

        A batch that the store refuses because of a value is parted until the key is found. `jitter`
        in [0, 1) spreads the delay over its upper half.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        latest_s = self._waiting.latest_deadline(self._flights.waiters(query.flights))
        retry_at = self._failed.retry_at(query, code, latest_s=latest_s, now=now, jitter=jitter)
        if retry_at == NEVER:
            return self._give_up(query, code, now)
        self._totals.retries += 1
        wait = self._queries.halve if self._failed.is_parted(code) else self._queries.park
        wait(query, retry_at)
        return Effects()

    def leave(self, lookup_id: LookupId) -> Effects:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        lookup = self._waiting.remove(lookup_id)
        cancelled = [] if lookup is None else self._desert([lookup])
        return Effects(cancelled=[query.id for query in cancelled])

    def expire(self, now: float) -> Effects:
        """End what has waited for its whole time, also by rows that may stand in for a failure.

        The outcome is `timeout`, or what is known to be wrong with the store.
        """
        return self._end(self._waiting.pop_expired(now), self._guard.late_code, now)

    def abandon(self, code: ErrorCode) -> Effects:
        """Tell all that wait that it failed, and end all queries: nobody can be answered any more.

        Not by rows that may stand in for a failure: they are no longer what was promised.
        """
        self._known.forget(None)
        return self._end(self._waiting.pop_expired(math.inf), code, now=0.0)

    def start_probe_if_due(self, now: float) -> bool:
        """Whether to ask the store for a sign of life now; then `on_probe` tells how it ended."""
        return self._guard.start_probe_if_due(now)

    def on_probe(self, error: ErrorCode | None, *, now: float, jitter: float) -> None:
        """The store gave a sign of life, or failed to; `jitter` in [0, 1)."""
        self._guard.on_probe(error, now=now, jitter=jitter)

    def count_timed_out(self, keys: int) -> None:
        """So many keys were not asked for in their time: others were before them."""
        self._totals.count_timed_out(keys)

    def next_deadline(self) -> float | None:
        """When there will be something to do without another event."""
        held_until = None if self.whole is None else self.whole.held_until
        next_query = self._turns.next_due() if held_until is None else held_until
        dues = (self._waiting.next_deadline(), self._guard.next_probe_at(), next_query)
        return min((due for due in dues if due is not None), default=None)

    def invalidate(self, keys: TypedKeys | None, origin: InvalidationOrigin) -> int:
        """Forget keys (all for None), and keep nothing of what is being read of them now.

        Returns how many cached entries went.
        """
        return self.changes.invalidate(keys, origin)

    def limit_cache(self, share: float) -> None:
        """Let the cache hold so much of its bound from now on, 0 to 1; what is too much goes."""
        self._known.cache.set_max_bytes(int(self._settings.cache.max_bytes * share))

    def explain(self, keys: TypedKeys, now: float) -> list[Explanation]:
        """Where the answer to each key would come from; counts as no visit."""
        return Explainer(self._known, self._flights, self._queries, self._guard).explain(keys, now)

    def oldest_row_age_s(self, now: float) -> float | None:
        """Upper bound of how stale an answer can be; None if nothing is held. Looks at all rows."""
        return self._known.cache.oldest_age_s(now)

    def statistics(self) -> DimensionStatistics:
        """Levels and totals now."""
        return DimensionStatistics(
            outcomes=self._totals.outcomes,
            coalesced_keys=self._totals.coalesced_keys,
            retries=self._totals.retries,
            invalidations=self._totals.invalidations,
            fenced_keys=self._totals.fenced_keys,
            waiting_keys=self._waiting.keys + len(self.wait.held),
            queued_keys=len(self._batcher),
            queries_in_flight=self._queries.in_flight,
            concurrency_limit=self._guard.limit,
            breaker_state=self._guard.breaker_state,
            cache=self._known.cache.statistics(),
        )

    def check_invariants(self) -> None:
        """For tests."""
        for part in (self._batcher, self._queries, self._guard, self._known.cache):
            part.check_invariants()
        carried = [*self._batcher.carried(), *self._queries.carried()]
        self._flights.check_invariants(np.concatenate([np.zeros(0, np.intp), *carried]))
        self._waiting.check_invariants(self._flights)
        assert self._queries.in_flight <= self._settings.batch.max_in_flight
        assert len(self._waiting) or not len(self._flights)

    def _wait(self, request: LookupRequest, group: KeyGroup, now: float) -> None:
        positions, deadline_s = group.positions, request.deadline_s
        joined = self._flights.join(
            request.id, group.keys, positions=positions, deadline_s=deadline_s
        )
        self._waiting.add(WaitingLookup(request.id, request.columns, deadline_s, joined.waiters))
        self._totals.coalesced_keys += len(joined.waiters) - len(joined.started)
        if joined.started.size:
            run = KeyRun(joined.started, request.keys.columns, positions[joined.indices])
            self._batcher.add(request.channel, run, now)

    def _give_up(self, query: Query, code: ErrorCode, now: float) -> Effects:
        if code is ErrorCode.KEY_REJECTED:
            code = self._known.condemn(self._flights.key_ids(query.flights), now)
        return self._land(query, self._shares.of_failure(query, code, now))

    def _land(self, query: Query, shares: Iterable[Share]) -> Effects:
        self._queries.end(query.id)
        self._flights.end(query.flights)
        end = self._waiting.answer  # tells whether it was the last one
        deliveries = [Delivery(each, answer, end(each, answer.size)) for each, answer in shares]
        return Effects(self._totals.told(deliveries))

    def _end(self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float) -> Effects:
        shares = self._shares.of_expired(lookups, code, now)
        told = self._totals.told([Delivery(*share, is_last) for share, is_last in shares])
        cancelled = self._desert(lookups)
        for query in cancelled:
            # One that had time enough would have failed with a timeout, had anybody waited longer.
            if now - query.sent_at >= self._settings.timeout_s / 2:
                self._guard.on_failure(ErrorCode.TIMEOUT, sent_at=query.sent_at, now=now)
        return Effects(told, [query.id for query in cancelled])

    def _desert(self, lookups: Sequence[WaitingLookup]) -> list[Query]:
        batch_ids = self._flights.leave({lookup.id: lookup.waiters for lookup in lookups})
        self._room.drop_deserted()
        return self._queries.end_deserted(batch_ids)
