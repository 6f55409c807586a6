"""Dimension state machine: decides what is answered, fetched, retried and cached.

Does no I/O: events come in with the time, effects go out for the shell to carry out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.cache.cache_memory import CacheMemory
from lookup_core.changelog.change_decoder import Change, RowChanges, TableChange
from lookup_core.deadlines import earliest
from lookup_core.dimension.cache_audit import CacheAudit
from lookup_core.dimension.dimension_events import (
    BatchId,
    ChannelId,
    Delivery,
    Effects,
    FetchedRows,
    KeyGroup,
    LookupId,
    LookupRequest,
    QueryOrder,
    QueryResult,
    Read,
)
from lookup_core.dimension.explanation import Explainer
from lookup_core.dimension.in_flight import InFlight, Share
from lookup_core.dimension.local_resolver import LocalAnswers, LocalResolver
from lookup_core.dimension.query import Query
from lookup_core.dimension.waiting_lookups import WaitingLookup
from lookup_core.dimension.watermark_wait import WatermarkWait
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.freshness.table_snapshot import IdRelation
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin, SharedStatistics
from lookup_core.table.full_table import FullTable
from lookup_core.table.table_load import TableLoad

_MIN_FENCE_S = 60.0  # how long changes are remembered, beyond the longest query
_REFRESH_CHANNEL = ChannelId(-1)  # all background refreshes take turns as one channel


class DimensionState:
    """One dimension's cache and its keys in flight; `now` is monotonic seconds.

    `local` answers without queries, `in_flight` has the others, `guard` decides about probes,
    `fence` compares changes with reads, `explainer` explains answers: callers read these parts,
    and change them through events only. `seed` makes the hashes of byte keys unpredictable for
    callers that choose the keys. Raises BackendError if the default row does not fit the schema.
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
        self.local = LocalResolver(settings, schema, seed=seed, memory=memory)
        self.guard = BackendGuard(
            settings.batch.max_in_flight, max_queries_per_s=settings.batch.max_queries_per_s
        )
        self.in_flight = InFlight(settings, self.guard)
        self._on_missing = settings.retry.on_missing.or_none
        self.explainer = Explainer(
            self.local, self.in_flight, guard=self.guard, on_missing=self._on_missing
        )
        self.fence = RecentChanges(age_s=max(_MIN_FENCE_S, 2 * settings.timeout_s))
        self.audit = CacheAudit.of(settings, self.local, self.fence, trust=feed_trust)
        self._epoch = schema.server.number
        # Callers have positive ids; these are background refreshes and parts of held lookups.
        self._own_ids = map(LookupId, count(-1, -1))
        self._wait = WatermarkWait(self.local, settings.wait_for_dimension_s, self._own_ids)
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)
        self._shared_keys = self._coalesced_keys = self._retries = self._fenced_keys = 0

    def submit(self, request: LookupRequest, now: float) -> list[Answer]:
        """Answer what is known now; the other keys wait, and are answered by deliveries.

        While changes up to its event time may be missing, all keys of a lookup wait. Raises
        Overloaded, before any change, if too many keys wait already.
        """
        if self._wait.is_ahead(request):
            self._check_room(request.keys.size)
            self._wait.hold(request, now)
            return []
        known = self.local.look_up(request, now, is_backend_down=self.guard.is_open)
        if known.unknown.positions.size:
            self._check_room(known.unknown.positions.size)
        return self._take_over(request, known, now)

    def next_order(self, now: float) -> QueryOrder | None:
        """A query to send, if a slot is free and one is due."""
        query = self.in_flight.next_query(now, is_local=self.local.is_whole)
        # The whole timeout, also for waiters with less time: others may join. Without waiters the
        # query is cancelled.
        timeout_s = self._settings.timeout_s
        return None if query is None else QueryOrder(query.id, query.keys, timeout_s, query.tries)

    def next_query_at(self) -> float | None:
        """The due time of the next query, given a connection; None: another event comes first."""
        return self.in_flight.next_query_at(is_local=self.local.is_whole)

    def callers(self, batch_id: BatchId) -> set[LookupId]:
        """The lookups that wait for a query at the backend; none for any other query."""
        query = self.in_flight.query(batch_id)
        waiting = [] if query is None else self.in_flight.waiting_for(query)
        return {self._wait.whole_id(each.lookup.id) for each in waiting}

    def on_rows(self, batch_id: BatchId, fetched: FetchedRows, *, now: float) -> Effects:
        """Answer with the rows of a query, and cache those that no change has overtaken.

        Keys without a row are queried again if attempts and time are left, deferred keys at once,
        by other queries. Raises the errors of Arrow for rows that exceed its limits: nothing is
        answered or cached then, and the query, without its deferred keys, waits for `on_failure`.
        """
        query = self.in_flight.query(batch_id)
        if query is None:
            return Effects()
        fetched = self.in_flight.on_fetched(query, fetched, now)
        read_at = query.sent_at if fetched.read_at is None else fetched.read_at
        age_ms = int((now - read_at) * 1000)
        result = QueryResult.of_rows(len(query.flights), fetched, age_ms=age_ms)
        recipients = self.in_flight.recipients(query, result, now)
        shares = [
            (each.lookup.id, answer)
            for each in recipients.served
            for answer in self.local.fetched(
                result, each.positions, each.ordinals, columns=each.lookup.columns
            )
        ]
        read = Read(query.keys, result, fetched, query.sent_at)
        self.on_read(read, now)
        self.local.keep(
            read,
            may_keep=self._may_keep(query, fetched, now),
            is_last_try=self.in_flight.rules.is_last_try(query),
            now=now,
        )
        self.guard.on_success(
            len(query.flights), sent_at=query.sent_at, now=now, in_flight=query.in_flight
        )
        self._retries += len(recipients.postponed)
        self.in_flight.end(query, recipients.postponed)
        return Effects(self._delivered(shares))

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
        query = self.in_flight.query(batch_id)
        if query is None:
            return Effects()
        if self.in_flight.retry_failed(query, code, now=now, jitter=jitter):
            self._retries += 1
            return Effects()
        key_ids = self.in_flight.key_ids(query)
        if code.is_of_one_key:
            self.local.quarantine.add(key_ids[0], code, now)
        shares = []
        for each in self.in_flight.waiting_for(query):
            keys = [key_ids[ordinal] for ordinal in each.ordinals.tolist()]
            shares += self._failed(each.lookup, each.positions, keys, code=code, now=now)
        self.in_flight.end(query)
        return Effects(self._delivered(shares))

    def leave(self, lookup_id: LookupId) -> Effects:
        """End a lookup whose caller has left; a no-op if it has ended."""
        parts = self._wait.leave(lookup_id)
        cancelled = [query.id for part in parts for query in self.in_flight.remove(part)]
        return Effects(cancelled=cancelled)

    def expire(self, now: float) -> Effects:
        """Look up keys that have waited for changes for too long; end lookups that are too late.

        The latter get stale rows if allowed, else the error `timeout`, or the known fault of the
        backend.
        """
        parts, late = self._wait.expire(now), self.in_flight.lookups.expired(now)
        if not (parts or late):  # the usual case
            return Effects()
        released = self._look_up_parts(parts, now)
        ended = self._end(late, self.guard.late_code, now)
        return Effects([*released, *ended.deliveries], ended.cancelled)

    def abandon(self, code: ErrorCode) -> Effects:
        """End all queries, and all lookups with this error: the schema is no longer valid."""
        self.local.invalidate(None)  # no stale rows: they have the former schema
        ended = self._end(self.in_flight.lookups.expired(math.inf), code, now=0.0)
        return Effects([*ended.deliveries, *self.end_waits(code)], ended.cancelled)

    def end_waits(self, code: ErrorCode) -> list[Delivery]:
        """End with this error all keys that wait for changes."""
        return [each for part in self._wait.release_all() for each in self._refuse(part, code)]

    def on_cached(self, outcomes: Mapping[Outcome, int], visited: Slots) -> None:
        """Count lookups that readers of the shared cache have answered, and their visits."""
        for outcome, keys in outcomes.items():
            self._outcomes[outcome] += keys
            self._shared_keys += keys
        self.local.visit(visited)

    def next_deadline(self) -> float | None:
        """The time of the next action that needs no other event, without queries."""
        return earliest(
            self._wait.deadlines.earliest(),
            self.in_flight.lookups.deadlines.earliest(),
            self.guard.breaker.probe_due_at(),
        )

    def on_changes(
        self, changes: Sequence[Change], origin: InvalidationOrigin, now: float
    ) -> Effects:
        """Apply changes in their order.

        Queries in flight for a changed key answer their waiters, and are neither joined nor
        cached. Later reads are cached if they saw the change. A key that waits because it had no
        row is queried again at once.
        """
        for change in changes:
            if isinstance(change, TableChange):
                self.fence.note_table(change.transaction_id, now, is_gap=change.is_gap)
                self.invalidate(None, origin)
            else:
                self._on_row_changes(change, origin, now)
        return Effects(self._look_up_parts(self._wait.on_changes(changes), now))

    def on_watermark(self, watermark_ms: int, now: float) -> Effects:
        """All changes before this event time are applied: look up the keys that waited for them."""
        return Effects(self._look_up_parts(self._wait.on_watermark(watermark_ms), now))

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

    def invalidate(self, keys: TypedKeys | None, origin: InvalidationOrigin) -> int:
        """Remove keys, or all for None; rows of them that are being read are not cached.

        Returns the number of cached entries removed.
        """
        hashes, removed = self.local.invalidate(keys)
        if self.audit is not None:
            self.audit.forget(hashes)
        self.in_flight.on_removed_keys(hashes)
        self._invalidations[origin] += removed if keys is None else keys.size
        return removed

    def begin_load(self, table: FullTable, now: float) -> TableLoad:
        """Begin a load of full mode, before its snapshot is taken; drops a load under way."""
        return TableLoad(table, self.fence, canonical=self.local.canonical, now=now)

    def end_load(self, load: TableLoad) -> None:
        """End a load: free its memory, and send queries if the table is loaded."""
        load.close()
        if self.local.is_whole:
            self.in_flight.held_until = -math.inf

    def limit_cache(self, share: float) -> None:
        """Limit the cache to a share, 0 to 1, of its configured bytes."""
        self.local.cache.set_max_bytes(int(self._settings.cache.max_bytes * share))

    def statistics(self) -> DimensionStatistics:
        """Levels and totals now."""
        outcomes = {outcome: int(self._outcomes[outcome]) for outcome in Outcome}
        outcomes[Outcome.HIT] += self.local.single_keys.hits
        return DimensionStatistics(
            outcomes=outcomes,
            coalesced_keys=self._coalesced_keys,
            retries=self._retries,
            invalidations=dict(self._invalidations),
            fenced_keys=self._fenced_keys,
            waiting_keys=self.in_flight.lookups.keys + self._wait.keys,
            queued_keys=len(self.in_flight.queue),
            queries_in_flight=self.in_flight.at_backend,
            concurrency_limit=self.guard.limit,
            breaker_state=self.guard.breaker.state,
            cache=self.local.cache.statistics(),
            shared=SharedStatistics(keys=self._shared_keys),
        )

    def check_invariants(self) -> None:
        """For tests: the parts are consistent with each other."""
        for part in (self.in_flight, self.guard, self.local.cache, self._wait):
            part.check_invariants()
        assert self.in_flight.at_backend <= self._settings.batch.max_in_flight
        assert self._has_room(0)

    def _take_over(self, request: LookupRequest, known: LocalAnswers, now: float) -> list[Answer]:
        """Query the keys that are not known, and refresh stale rows; returns the known answers."""
        if known.unknown.positions.size:
            self._fetch(request, known.unknown, now)
        if known.outdated.positions.size:
            self._refresh(request, known.outdated, now)
        self._count(known.answers)
        return known.answers

    @property
    def _waiting_keys(self) -> int:
        return self.in_flight.waiting_keys + self._wait.keys

    def _has_room(self, keys: int) -> bool:
        return self._waiting_keys + keys <= self._settings.max_waiting_keys

    def _check_room(self, keys: int) -> None:
        """Raise Overloaded if this many more keys may not wait, for rows or for changes."""
        if not self._has_room(keys):
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._waiting_keys} keys wait for {self._settings.name};"
                f" the limit is {self._settings.max_waiting_keys}",
            )

    def _look_up_parts(self, parts: Iterable[LookupRequest], now: float) -> list[Delivery]:
        """Look up parts whose wait is over; returns the deliveries that are known now.

        They have room: their keys have counted towards the limit all the time.
        """
        deliveries = []
        for part in parts:
            known = self.local.look_up(part, now, is_backend_down=self.guard.is_open)
            answers = self._take_over(part, known, now)
            deliveries += [self._part_of_whole(part, answer) for answer in answers]
        return deliveries

    def _refuse(self, part: LookupRequest, code: ErrorCode) -> list[Delivery]:
        every = np.arange(part.keys.size, dtype=np.int32)
        answer = rowless_answer(every, Outcome.ERROR, error=code)
        self._count([answer])
        return [self._part_of_whole(part, answer)]

    def _part_of_whole(self, part: LookupRequest, answer: Answer) -> Delivery:
        return self._wait.whole(Delivery(part.id, answer, is_last=False))

    def _fetch(self, request: LookupRequest, group: KeyGroup, now: float) -> None:
        on_missing, read_after = self._on_missing, -math.inf
        if request.options is not None:
            on_missing = request.options.on_missing_or(on_missing)
            read_after = now - request.options.max_age_s
        self._coalesced_keys += self.in_flight.join(
            request, group, on_missing=on_missing, read_after=read_after, now=now
        )

    def _refresh(self, request: LookupRequest, outdated: KeyGroup, now: float) -> None:
        """Fetch stale rows in the background, as a lookup without deliveries."""
        is_idle = ~self.in_flight.may_join(outdated.keys.ids(), self._on_missing)
        idle = np.flatnonzero(is_idle).astype(np.int32)
        if self.guard.is_open or not idle.size or not self._has_room(idle.size):
            return
        own = replace(
            request,
            id=next(self._own_ids),
            channel=_REFRESH_CHANNEL,
            deadline_s=now + self._settings.timeout_s,
            options=None,
        )
        self._fetch(own, KeyGroup(outdated.positions[idle], outdated.keys.take(idle)), now)

    def _may_keep(self, query: Query, fetched: FetchedRows, now: float) -> npt.NDArray[np.bool_]:
        hashes, may_keep = self.in_flight.may_keep(query)
        if not self.local.is_trusted(now) or fetched.server.number < self._epoch:
            return np.zeros_like(may_keep)
        is_admitted = self.fence.admits(hashes, fetched.snapshot, sent_at=query.sent_at, now=now)
        self._fenced_keys += int((may_keep & ~is_admitted).sum())
        return may_keep & is_admitted

    def _on_row_changes(self, change: RowChanges, origin: InvalidationOrigin, now: float) -> None:
        keys = self.local.canonical(change.keys)
        # A late event may have former labels, or rows of a former table of this name.
        change = change.without_rows(self.fence.are_outdated(change.transaction_ids))
        if self.audit is not None:
            change = self.audit.on_changes(keys, change, now)
        self.local.apply(keys, change, now)
        self.fence.note(keys.hashes, change.transaction_ids, now)
        self.in_flight.on_changed_keys(keys.hashes, now)
        self._invalidations[origin] += keys.size

    def _failed(
        self,
        lookup: WaitingLookup,
        positions: npt.NDArray[np.int32],
        key_ids: Sequence[KeyId],
        *,
        code: ErrorCode,
        now: float,
    ) -> list[Share]:
        answers = self.local.failed(lookup, key_ids, positions, code=code, now=now)
        return [(lookup.id, answer) for answer in answers]

    def _end(self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float) -> Effects:
        shares = []
        for lookup in lookups:
            left = self.in_flight.open_keys(lookup)
            shares += self._failed(lookup, *left, code=code, now=now)
        deliveries = self._delivered(shares)
        cancelled = self.in_flight.close(lookups)
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
        deliveries = [self._wait.whole(each) for each in self.in_flight.deliveries(shares)]
        to_callers = [delivery for delivery in deliveries if delivery.lookup_id >= 0]
        self._count(delivery.answer for delivery in to_callers)
        return to_callers
