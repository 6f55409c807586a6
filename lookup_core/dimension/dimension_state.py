"""Dimension state machine: decides what is answered, fetched, retried and cached.

Does no I/O: events come in with the time, effects go out for the shell to carry out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.cache_memory import CacheMemory
from lookup_core.cache.dimension_cache import Bookmark, Hit
from lookup_core.changelog.change_decoder import Change, RowChanges, TableChange
from lookup_core.deadlines import earliest
from lookup_core.dimension.batcher import Batcher, ChannelId, KeyRun
from lookup_core.dimension.cache_audit import CacheAudit, Read
from lookup_core.dimension.dimension_events import (
    Delivery,
    Effects,
    FetchedRows,
    LookupRequest,
    QueryOrder,
    QueryResult,
)
from lookup_core.dimension.explanation import Explainer
from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId
from lookup_core.dimension.local_resolver import KeyGroup, LocalResolver
from lookup_core.dimension.query_table import Query, QueryTable, answered_now
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.dimension.watermark_wait import WatermarkWait
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.freshness.table_snapshot import IdRelation
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin, SharedStatistics
from lookup_core.table.table_load import TableLoad

_MIN_FENCE_S = 60.0  # how long changes are remembered, beyond the longest query
_REFRESH_CHANNEL = ChannelId(-1)  # all background refreshes take turns as one channel

Share = tuple[LookupId, Answer]


class DimensionState:
    """One dimension's cache, flights, queues and queries; `now` is monotonic seconds.

    `guard` decides about probes, `fence` compares changes with reads, `explainer` explains answers.
    `seed` makes the hashes of byte keys unpredictable for callers that choose the keys. Raises
    BackendError if the default row does not fit the schema.
    """

    def __init__(
        self,
        settings: DimensionSettings,
        schema: DimensionSchema,
        *,
        seed: int = 0,
        memory: CacheMemory | None = None,
        feed_trust: FeedTrust | None = None,
    ) -> None:
        self._settings = settings
        self._resolver = LocalResolver(settings, schema, seed=seed, memory=memory)
        self.table = self._resolver.table  # of full mode; None in the other modes
        self.cache = self._resolver.cache
        self._flights = FlightTable()
        self._batcher = Batcher(settings.batch, self._flights, timeout_s=settings.timeout_s)
        self.guard = BackendGuard(
            settings.batch.max_in_flight, max_queries_per_s=settings.batch.max_queries_per_s
        )
        self._queries = QueryTable(self._flights, self._batcher, self.guard, retry=settings.retry)
        self._waiting = WaitingLookups(settings, self._batcher)
        self._on_missing = settings.retry.on_missing.or_none
        self.explainer = Explainer(
            self._resolver,
            self._flights,
            queries=self._queries,
            guard=self.guard,
            on_missing=self._on_missing,
        )
        self.fence = RecentChanges(age_s=max(_MIN_FENCE_S, 2 * settings.timeout_s))
        self.audit = CacheAudit.of(settings, self._resolver, self.fence, trust=feed_trust)
        self._epoch = schema.server.number
        self._refresh_ids = map(LookupId, count(-1, -1))  # callers have positive ids
        self.wait = WatermarkWait(self._resolver, settings.wait_for_dimension_s)
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._single_hits = 0  # separate: numpy takes ten times as long to add one
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)
        self._shared_keys = self._coalesced_keys = self._retries = self._fenced_keys = 0

    def submit(self, request: LookupRequest, now: float) -> list[Answer]:
        """Answer what is known now; the other keys wait, and are answered by deliveries.

        Raises Overloaded, before any change, if too many keys wait already.
        """
        known = self._resolver.look_up(request, now, is_backend_down=self.guard.is_open)
        unknown = known.unknown
        self.check_room(len(unknown.positions))
        if unknown.positions.size:
            self._fetch(request, unknown, now)
        if known.outdated.positions.size:
            self._refresh(request, known.outdated, now)
        self._count(known.answers)
        return known.answers

    def check_room(self, keys: int) -> None:
        """Raise Overloaded if this many more keys may not wait."""
        self._waiting.check_room(keys)

    def hit(self, value: object, now: float) -> Hit | None:
        """The fresh row of the key with this value; None if `submit` is needed."""
        hit = self._resolver.hit(value, now)
        self._single_hits += hit is not None
        return hit

    def revisit(self, bookmark: Bookmark, now: float) -> float | None:
        """The age of the row of a former hit; None if `hit` is needed."""
        age_s = self._resolver.revisit(bookmark, now)
        self._single_hits += age_s is not None
        return age_s

    def next_query_at(self) -> float | None:
        """The due time of the next query, given a connection; None: another event comes first."""
        return self._queries.next_due(is_local=self.is_whole)

    def next_order(self, now: float) -> QueryOrder | None:
        """A query to send, if a slot is free and one is due."""
        query = self._queries.next_query(now, is_local=self.is_whole)
        # The whole timeout, also for waiters with less time: others may join. Without waiters the
        # query is cancelled.
        timeout_s = self._settings.timeout_s
        return None if query is None else QueryOrder(query.id, query.keys, timeout_s, query.tries)

    def callers(self, batch_id: BatchId) -> list[LookupId]:
        """The lookups that wait for a query at the backend; none for any other query."""
        query = self._queries.at_backend(batch_id)
        return [] if query is None else list(self._flights.waiters(query.flights))

    def on_rows(self, batch_id: BatchId, fetched: FetchedRows, *, now: float) -> Effects:
        """Answer with the rows of a query, and cache those that no change has overtaken.

        Keys without a row are queried again if attempts and time are left, deferred keys at once.
        Raises the errors of Arrow for rows that exceed its limits, before any other change.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        fetched = self._queries.defer(query, fetched, now)
        rows, read_at = fetched.rows, fetched.read_at
        missing = max(len(query.flights) - rows.num_rows, 0)
        self._batcher.on_rows(
            rows.num_rows, rows.nbytes, missing=missing, seconds=now - query.sent_at
        )
        age_ms = int((now - (query.sent_at if read_at is None else read_at)) * 1000)
        result = QueryResult.of_rows(len(query.flights), fetched, age_ms=age_ms)
        waiters = self._flights.waiters(query.flights)
        postponed = self._queries.postponed_keys(
            query, result, waiters, waiting=self._waiting, now=now
        )
        shares = [
            (lookup_id, answer)
            for lookup_id, places in answered_now(waiters, postponed).items()
            for answer in self._resolver.fetched(
                result, *places, lookup=self._waiting.get(lookup_id)
            )
        ]
        self.on_read(Read(query.keys, result, fetched, query.sent_at), now)
        may_keep = self._may_keep(query, fetched, now)
        is_last_try = self._queries.is_last_try(query)
        self._resolver.keep(query, result, may_keep=may_keep, is_last_try=is_last_try, now=now)
        self.guard.on_success(
            len(query.flights), sent_at=query.sent_at, now=now, in_flight=query.in_flight
        )
        for keys in postponed:
            self._retries += 1
            self._queries.retry_missing(query, keys, self._waiting)
        return self._answer(query, shares)

    def on_read(self, read: Read, now: float) -> None:
        """Compare a read with what is cached; a no-op without an audit."""
        if self.audit is not None and read.fetched.server.number >= self._epoch:
            self.audit.on_read(read, now)

    def on_failure(
        self, batch_id: BatchId, *, code: ErrorCode, now: float, jitter: float
    ) -> Effects:
        """Park the keys of a failed query for a retry, or answer all waiters with the error.

        Nothing is cached. A batch with refused values is halved until each such key is found.
        `jitter` in [0, 1) spreads the delay over its upper half.
        """
        query = self._queries.at_backend(batch_id)
        if query is None:
            return Effects()
        if code is ErrorCode.TIMEOUT:
            self._batcher.on_timeout()
        latest_s = self._waiting.latest_deadline(self._flights.waiters(query.flights))
        if self._queries.retry_failed(query, code, latest_s=latest_s, now=now, jitter=jitter):
            self._retries += 1
            return Effects()
        if code.is_of_one_key:
            self._resolver.quarantine.add(self._flights.key_ids(query.flights)[0], code, now)
        shares = []
        for lookup_id, (positions, ordinals) in self._flights.waiters(query.flights).items():
            key_ids = self._flights.key_ids(query.flights[ordinals])
            shares += self._failed(lookup_id, positions, key_ids, code=code, now=now)
        return self._answer(query, shares)

    def leave(self, lookup_id: LookupId) -> Effects:
        """End a lookup whose caller has left; a no-op if it has ended."""
        lookup = self._waiting.remove(lookup_id)
        cancelled = [] if lookup is None else self._close([lookup])
        return Effects(cancelled=[query.id for query in cancelled])

    def expire(self, now: float) -> Effects:
        """End the lookups whose deadline has passed, with stale rows if allowed.

        The error is `timeout`, or the known fault of the backend.
        """
        return self._end(self._waiting.expired(now), self.guard.late_code, now)

    def abandon(self, code: ErrorCode) -> Effects:
        """End all queries, and all lookups with this error: the schema is no longer valid."""
        self._resolver.invalidate(None)  # no stale rows: they have the former schema
        return self._end(self._waiting.expired(math.inf), code, now=0.0)

    def on_cached(self, outcomes: Mapping[Outcome, int], visited: Slots) -> None:
        """Count lookups that readers of the shared cache have answered, and their visits."""
        for outcome, keys in outcomes.items():
            self._outcomes[outcome] += keys
            self._shared_keys += keys
        self._resolver.visit(visited)

    def settle_cache(self, now: float) -> float | None:
        """Let readers of the shared cache see new rows, if that is due; returns the next time."""
        return self._resolver.settle_cache(now)

    def count_timed_out(self, keys: int) -> None:
        """Count keys whose deadline passed before they were submitted."""
        self._outcomes[Outcome.TIMEOUT] += keys

    def next_deadline(self) -> float | None:
        """The time of the next action that needs no other event, without queries."""
        return earliest(self._waiting.next_deadline(), self.guard.next_probe_at())

    def on_changes(self, changes: Iterable[Change], origin: InvalidationOrigin, now: float) -> int:
        """Apply changes in their order; returns the number of cached entries removed.

        Queries in flight for a changed key answer their waiters, and are neither joined nor
        cached. Later reads are cached if they saw the change. A key that waits because it had no
        row is queried again at once.
        """
        removed = 0
        for change in changes:
            if isinstance(change, TableChange):
                self.fence.note_table(change.transaction_id, now, is_gap=change.is_gap)
                removed += self.invalidate(None, origin)
            else:
                removed += self._on_row_changes(change, origin, now)
        return removed

    def on_epoch(self, epoch: int, now: float) -> int | None:
        """A server of this epoch has answered: remove all rows if it is later than all before.

        Returns the number of cached entries removed, None without a switch. Reads under way are
        not cached; ids of former changes are void, and the relation of ids is UNKNOWN again.
        """
        if epoch <= self._epoch:
            return None
        self._epoch = epoch
        self.fence.forget_ids(now)
        self.fence.relate(IdRelation.UNKNOWN)
        return self.invalidate(None, InvalidationOrigin.FAILOVER)

    def trust(self, *, until: float, feed: FeedState = FeedState.LIVE) -> None:
        """Set until when all changes are reported, by the feed's state; for ever at first.

        Without trust no row is cached, and cached rows are served on errors only. With trust
        restored, they are served again.
        """
        self._resolver.trust(until=until, feed=feed)

    def invalidate(self, keys: TypedKeys | None, origin: InvalidationOrigin) -> int:
        """Remove keys, or all for None; rows of them that are being read are not cached.

        Returns the number of cached entries removed.
        """
        hashes, removed = self._resolver.invalidate(keys)
        if self.audit is not None:
            self.audit.forget(hashes)
        self._flights.detach(self._flights.with_hashes(hashes))
        self._invalidations[origin] += removed if keys is None else keys.size
        return removed

    @property
    def is_whole(self) -> bool:
        """Whether the whole table is loaded; false in other modes than full."""
        return self.table is not None and self.table.is_whole

    def hold_until(self, at: float) -> None:
        """Send no query until the first load ends, at the latest until `at`."""
        self._queries.hold_until(at)

    def begin_load(self, now: float) -> TableLoad:
        """Begin a load of full mode, before its snapshot is taken; drops a load under way."""
        assert self.table is not None
        return TableLoad(self.table, self.fence, canonical=self._resolver.canonical, now=now)

    def end_load(self) -> None:
        """End a load: free its memory, and send queries if the table is loaded."""
        assert self.table is not None
        self.table.abort_reload()
        if self.table.is_whole:
            self._queries.release()

    def known_rows(self, keys: pa.RecordBatch, now: float) -> FetchedRows | None:
        """The rows of distinct keys from a loaded table; None unless all keys are known."""
        return self._resolver.known_rows(keys, now)

    def limit_cache(self, share: float) -> None:
        """Limit the cache to a share, 0 to 1, of its configured bytes."""
        self._resolver.cache.set_max_bytes(int(self._settings.cache.max_bytes * share))

    def statistics(self) -> DimensionStatistics:
        """Levels and totals now."""
        outcomes = {outcome: int(self._outcomes[outcome]) for outcome in Outcome}
        outcomes[Outcome.HIT] += self._single_hits
        return DimensionStatistics(
            outcomes=outcomes,
            coalesced_keys=self._coalesced_keys,
            retries=self._retries,
            invalidations=dict(self._invalidations),
            fenced_keys=self._fenced_keys,
            waiting_keys=self._waiting.keys + len(self.wait),
            queued_keys=len(self._batcher),
            queries_in_flight=self._queries.in_flight,
            concurrency_limit=self.guard.limit,
            breaker_state=self.guard.breaker_state,
            cache=self._resolver.cache.statistics(),
            shared=SharedStatistics(keys=self._shared_keys),
        )

    def check_invariants(self) -> None:
        """For tests: the parts are consistent with each other."""
        for part in (self._batcher, self._queries, self.guard, self._resolver.cache, self.wait):
            part.check_invariants()
        carried = [*self._batcher.carried(), *self._queries.carried()]
        self._flights.check_invariants(np.concatenate([np.zeros(0, np.intp), *carried]))
        self._waiting.check_invariants(self._flights)
        assert self._queries.in_flight <= self._settings.batch.max_in_flight
        assert len(self._waiting) or not len(self._flights)

    def _fetch(self, request: LookupRequest, group: KeyGroup, now: float) -> None:
        keys, positions, deadline_s = group.keys, group.positions, request.deadline_s
        on_missing, read_after = self._on_missing, -math.inf
        if request.options is not None:
            on_missing = request.options.on_missing_or(on_missing)
            read_after = now - request.options.max_age_s
            self._queries.detach_older(keys.ids(), read_after)
        joined = self._flights.join(
            request.id, keys, positions=positions, deadline_s=deadline_s, on_missing=on_missing
        )
        self._waiting.add(
            WaitingLookup(
                request.id,
                request.columns,
                deadline_s,
                waiters=joined.waiters,
                on_missing=on_missing,
                read_after=read_after,
            )
        )
        self._coalesced_keys += len(joined.waiters) - len(joined.started)
        if joined.started.size:
            run = KeyRun(joined.started, request.keys.columns, positions[joined.indices])
            self._batcher.add(request.channel, run, now)

    def _refresh(self, request: LookupRequest, outdated: KeyGroup, now: float) -> None:
        """Fetch stale rows in the background, as a lookup without deliveries."""
        is_idle = ~self._flights.may_join(outdated.keys.ids(), self._on_missing)
        idle = np.flatnonzero(is_idle).astype(np.int32)
        if self.guard.is_open or not idle.size or not self._waiting.has_room(len(idle)):
            return
        own = replace(
            request,
            id=next(self._refresh_ids),
            channel=_REFRESH_CHANNEL,
            deadline_s=now + self._settings.timeout_s,
            options=None,
        )
        self._fetch(own, KeyGroup(outdated.positions[idle], outdated.keys.take(idle)), now)

    def _may_keep(self, query: Query, fetched: FetchedRows, now: float) -> npt.NDArray[np.bool_]:
        may_keep = self._flights.may_keep(query.flights)
        if not self._resolver.is_trusted(now) or fetched.server.number < self._epoch:
            return np.zeros_like(may_keep)
        hashes = self._flights.hashes(query.flights)
        is_admitted = self.fence.admits(hashes, fetched.snapshot, sent_at=query.sent_at, now=now)
        self._fenced_keys += int((may_keep & ~is_admitted).sum())
        return may_keep & is_admitted

    def _on_row_changes(self, change: RowChanges, origin: InvalidationOrigin, now: float) -> int:
        keys = self._resolver.canonical(change.keys)
        # A late event may have former labels, or rows of a former table of this name.
        change = change.without_rows(self.fence.are_outdated(change.transaction_ids))
        if self.audit is not None:
            change = self.audit.on_changes(keys, change, now)
        removed = self._resolver.apply(keys, change, now)
        self.fence.note(keys.hashes, change.transaction_ids, now)
        self._queries.on_changed_keys(keys.hashes, now)
        self._invalidations[origin] += keys.size
        return removed

    def _failed(
        self,
        lookup_id: LookupId,
        positions: npt.NDArray[np.int32],
        key_ids: Sequence[KeyId],
        *,
        code: ErrorCode,
        now: float,
    ) -> list[Share]:
        lookup = self._waiting.get(lookup_id)
        answers = self._resolver.failed(lookup, key_ids, positions, code=code, now=now)
        return [(lookup_id, answer) for answer in answers]

    def _answer(self, query: Query, shares: Sequence[Share]) -> Effects:
        self._queries.end(query.id)
        self._flights.end(query.flights)
        return Effects(self._delivered(shares))

    def _end(self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float) -> Effects:
        shares = []
        for lookup in lookups:
            left = self._flights.left_open(lookup.id, lookup.waiters)
            shares += self._failed(lookup.id, *left, code=code, now=now)
        deliveries = self._delivered(shares)
        cancelled = self._close(lookups)
        for query in cancelled:
            # With its whole time, and a waiter, the query would have failed with a timeout.
            if now - query.sent_at >= self._settings.timeout_s / 2:
                self.guard.on_failure(ErrorCode.TIMEOUT, sent_at=query.sent_at, now=now)
        return Effects(deliveries, [query.id for query in cancelled])

    def _count(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._outcomes += np.bincount(answer.outcomes, minlength=len(Outcome))

    def _delivered(self, shares: Sequence[Share]) -> list[Delivery]:
        """The deliveries to callers, counted; background refreshes get none."""
        deliveries = [
            Delivery(lookup_id, answer, is_last=self._waiting.answer(lookup_id, answer.size))
            for lookup_id, answer in shares
        ]
        self._waiting.compact(dict(shares), self._flights)
        of_callers = [delivery for delivery in deliveries if delivery.lookup_id >= 0]
        self._count(delivery.answer for delivery in of_callers)
        return of_callers

    def _close(self, lookups: Sequence[WaitingLookup]) -> list[Query]:
        batch_ids = self._flights.leave({lookup.id: lookup.waiters for lookup in lookups})
        if self._waiting.has_many_unwanted():
            self._batcher.drop_unwanted()
        return self._queries.end_unwanted(batch_ids)
