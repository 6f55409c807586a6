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
    Submitted,
)
from lookup_core.dimension.in_flight import InFlight
from lookup_core.dimension.local_resolver import LocalAnswers, LocalResolver
from lookup_core.dimension.query import Query
from lookup_core.dimension.waiting_lookups import WaitingLookup
from lookup_core.dimension.watermark_wait import WatermarkWait
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.freshness.followed_server import FollowedServer
from lookup_core.freshness.server_identity import ServerEpoch, ServerIdentity
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import DimensionSettings, WhileLoading
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin, SharedStatistics
from lookup_core.table.full_table import FullTable
from lookup_core.table.table_load import TableLoad

_MIN_FENCE_S = 60.0  # how long changes are remembered, beyond the longest query
_REFRESH_CHANNEL = ChannelId(-1)  # all background refreshes take turns as one channel


class DimensionState:
    """One dimension's cache and its keys in flight; `now` is monotonic seconds.

    Its parts are correlated, and change by its events. Three are handed out for what concerns no
    other part: `guard` takes probes, `local.single_keys` reads single rows, `local.cache` settles.
    What else is public is for reading. `seed` makes the hashes of byte keys unpredictable for
    callers that choose the keys. `default` is the row of missing keys, in the schema's columns.
    """

    def __init__(
        self,
        settings: DimensionSettings,
        schema: DimensionSchema,
        *,
        seed: int = 0,
        default: pa.RecordBatch | None = None,
        memory: CacheMemory | None = None,
        feed_trust: FeedTrust | None = None,
    ) -> None:
        self._settings = settings
        self.local = LocalResolver(settings, schema, seed=seed, default=default, memory=memory)
        self.guard = BackendGuard(
            settings.batch.max_in_flight, max_queries_per_s=settings.batch.max_queries_per_s
        )
        self.in_flight = InFlight(settings, self.guard)
        self.fence = RecentChanges(age_s=max(_MIN_FENCE_S, 2 * settings.timeout_s))
        self.audit = CacheAudit.of(settings, self.local, self.fence, trust=feed_trust)
        self.servers = FollowedServer(schema.server)
        # Callers have positive ids; these are background refreshes and parts of held lookups.
        self._own_ids = map(LookupId, count(-1, -1))
        self._refreshes: set[LookupId] = set()  # those under way
        self._wait = WatermarkWait(self.local, settings.wait_for_dimension_s, self._own_ids)
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._invalidations = dict.fromkeys(InvalidationOrigin, 0)
        self._shared_keys = self._coalesced_keys = self._retries = self._fenced_keys = 0

    def submit(self, request: LookupRequest, now: float) -> Submitted:
        """Answer what is known now; the other keys wait, and are answered by deliveries.

        While changes up to its event time may be missing, all keys of a lookup wait. Raises
        Overloaded, before any change, if too many keys wait already.
        """
        if request.event_time_ms is not None and self._wait.is_ahead(request):
            self._check_room(request.keys.size)
            self._wait.hold(request, now)
            return Submitted(request.id, [], is_done=False, is_queued=True)
        known = self.local.look_up(request, now, is_backend_down=self.guard.is_open)
        unknown = known.unknown.positions.size
        if unknown:
            self._check_room(unknown)
        is_queued = self._queue(request, known, now)
        self._count(known.answers)
        return Submitted(request.id, known.answers, is_done=not unknown, is_queued=is_queued)

    def next_order(self, now: float) -> QueryOrder | None:
        """A query to send, if a slot is free and one is due."""
        query = self.in_flight.next_query(now, is_local=self.local.cache.is_whole)
        # The whole timeout, also for waiters with less time: others may join.
        timeout_s = self._settings.timeout_s
        return None if query is None else QueryOrder(query.id, query.keys, timeout_s, query.tries)

    def next_query_at(self) -> float | None:
        """The due time of the next query, given a connection; None: another event comes first."""
        return self.in_flight.next_query_at(is_local=self.local.cache.is_whole)

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
        answers = [
            answer for served in recipients.served for answer in self.local.fetched(result, served)
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
        return Effects(self._delivered(answers))

    def on_read(self, read: Read, now: float) -> None:
        """Compare a read with what is cached; a no-op without an audit."""
        if self.audit is not None and not self.servers.is_former(read.fetched.server):
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
        answers: list[Delivery] = []
        for each in self.in_flight.waiting_for(query):
            keys = [key_ids[ordinal] for ordinal in each.ordinals.tolist()]
            answers += self.local.failed(each.lookup, each.positions, keys, code=code, now=now)
        self.in_flight.end(query)
        return Effects(self._delivered(answers))

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

    def abandon(self, code: ErrorCode, now: float) -> Effects:
        """End all queries, and all lookups with this error: the schema is no longer valid."""
        # First: no row of the former schema is served as stale.
        removed = self.invalidate(None, InvalidationOrigin.SCHEMA)
        ended = self._end(self.in_flight.lookups.expired(math.inf), code, now)
        waits = self.end_waits(code)
        return Effects([*ended.deliveries, *waits.deliveries], ended.cancelled, removed)

    def end_waits(self, code: ErrorCode) -> Effects:
        """End with this error all keys that wait for changes."""
        deliveries = self._wait.refuse_all(code)
        self._count(delivery.answer for delivery in deliveries)
        return Effects(deliveries)

    def on_cached(self, outcomes: Mapping[Outcome, int], visited: Slots) -> None:
        """Count lookups that readers of the shared cache have answered, and their visits."""
        for outcome, keys in outcomes.items():
            self._outcomes[outcome] += keys
            self._shared_keys += keys
        self.local.cache.visit(visited)

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

    def on_server(self, server: ServerEpoch, now: float) -> int | None:
        """A server has answered: remove all rows if it is of a later epoch than all before.

        Returns the number of cached entries removed, None without a switch. Reads under way are
        not cached then, and ids of former changes are void.
        """
        if server == self.servers.lookups:  # the usual case
            return None
        removed = None
        if self.servers.on_reply(server):
            self.fence.forget_ids(now)
            removed = self.invalidate(None, InvalidationOrigin.FAILOVER)
        self.fence.relate(self.servers.relation)
        return removed

    def on_feed_server(self, server: ServerIdentity) -> None:
        """The server whose transaction ids the feed reports."""
        self.servers.on_feed(server)
        self.fence.relate(self.servers.relation)

    def on_feed(
        self, feed: FeedState, *, trusted_until: float = -math.inf, reported_until: float = 0.0
    ) -> None:
        """The feed is in this state; the times are those of `FeedHealth`, if it is live."""
        if feed is FeedState.LIVE:
            self.local.cache.confirm(reported_until)
        self.local.trust(until=trusted_until, feed=feed)

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

    def wait_for_load(self, now: float) -> None:
        """A load of full mode will come: hold queries until its end, if the settings say so."""
        full = self._settings.full
        if full.while_loading is WhileLoading.WAIT:
            self.in_flight.hold_queries(now + full.warmup_max_wait_s)

    def begin_load(self, table: FullTable, now: float) -> TableLoad:
        """Begin a load of full mode, before its snapshot is taken; drops a load under way."""
        return TableLoad(table, self.fence, canonical=self.local.canonical, now=now)

    def end_load(self, load: TableLoad) -> None:
        """End a load: free its memory, and send queries if the table is loaded."""
        load.close()
        if self.local.cache.is_whole:
            self.in_flight.hold_queries(-math.inf)

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
        assert self._room() >= 0
        assert all(each in self.in_flight.lookups for each in self._refreshes)

    def _queue(self, request: LookupRequest, known: LocalAnswers, now: float) -> bool:
        """Query the keys that are not known, and refresh stale rows; False if there are none."""
        is_queued = bool(known.unknown.positions.size)
        if is_queued:
            self._fetch(request, known.unknown, now)
        if known.outdated.positions.size:
            is_queued |= self._refresh(request, known.outdated, now)
        return is_queued

    def _room(self) -> int:
        """How many more keys may wait, for rows or for changes."""
        waiting = self.in_flight.waiting_keys + self._wait.keys
        return self._settings.max_waiting_keys - waiting

    def _check_room(self, keys: int) -> None:
        room, limit = self._room(), self._settings.max_waiting_keys
        if keys > room:
            detail = f"{limit - room} keys wait for {self._settings.name}; the limit is {limit}"
            raise Overloaded(ErrorCode.OVERLOADED, detail)

    def _look_up_parts(self, parts: Iterable[LookupRequest], now: float) -> list[Delivery]:
        """Look up parts whose wait is over; returns the deliveries that are known now.

        They have room: their keys have counted towards the limit all the time.
        """
        deliveries = []
        for part in parts:
            known = self.local.look_up(part, now, is_backend_down=self.guard.is_open)
            self._queue(part, known, now)
            self._count(known.answers)
            deliveries += [self._wait.whole(Delivery(part.id, a)) for a in known.answers]
        return deliveries

    def _fetch(self, request: LookupRequest, group: KeyGroup, now: float) -> None:
        on_missing, read_after = self.in_flight.on_missing, -math.inf
        if request.options is not None:
            on_missing = request.options.on_missing_or(on_missing)
            read_after = now - request.options.max_age_s
        self._coalesced_keys += self.in_flight.join(
            request, group, on_missing=on_missing, read_after=read_after, now=now
        )

    def _refresh(self, request: LookupRequest, outdated: KeyGroup, now: float) -> bool:
        """Fetch stale rows, as a lookup without deliveries; False without need or room."""
        is_idle = ~self.in_flight.may_join(outdated.keys.ids())
        idle = np.flatnonzero(is_idle).astype(np.int32)
        if self.guard.is_open or not idle.size or idle.size > self._room():
            return False
        own = replace(
            request,
            id=next(self._own_ids),
            channel=_REFRESH_CHANNEL,
            deadline_s=now + self._settings.timeout_s,
            options=None,
        )
        self._refreshes.add(own.id)
        self._fetch(own, KeyGroup(outdated.positions[idle], outdated.keys.take(idle)), now)
        return True

    def _may_keep(self, query: Query, fetched: FetchedRows, now: float) -> npt.NDArray[np.bool_]:
        hashes, may_keep = self.in_flight.may_keep(query)
        if not self.local.is_trusted(now) or self.servers.is_former(fetched.server):
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
        self.local.cache.apply(keys, change, now)
        self.fence.note(keys.hashes, change.transaction_ids, now)
        self.in_flight.on_changed_keys(keys.hashes, now)
        self._invalidations[origin] += keys.size

    def _end(self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float) -> Effects:
        answers: list[Delivery] = []
        for each in lookups:
            answers += self.local.failed(each, *self.in_flight.open_keys(each), code=code, now=now)
        deliveries = self._delivered(answers)
        cancelled = self.in_flight.close(lookups)
        for query in cancelled:
            # With its whole time, and a waiter, the query would have failed with a timeout.
            if now - query.sent_at >= self._settings.timeout_s / 2:
                self.guard.on_failure(ErrorCode.TIMEOUT, sent_at=query.sent_at, now=now)
        return Effects(deliveries, [query.id for query in cancelled])

    def _count(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._outcomes += np.bincount(answer.outcomes, minlength=len(Outcome))

    def _delivered(self, answers: Sequence[Delivery]) -> list[Delivery]:
        """The deliveries to callers, counted; background refreshes get none."""
        to_callers = []
        for delivery in self.in_flight.deliveries(answers):
            if delivery.lookup_id not in self._refreshes:
                to_callers.append(self._wait.whole(delivery))
            elif delivery.is_last:
                self._refreshes.discard(delivery.lookup_id)
        self._count(delivery.answer for delivery in to_callers)
        return to_callers
