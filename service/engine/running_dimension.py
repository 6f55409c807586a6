"""Running dimension: carries out one `DimensionState` as queries, probes and deliveries.

Makes no decision and reads no rows. Lives as long as the schema of its state.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.changelog.change_decoder import Change, TableChange
from lookup_core.deadlines import earliest
from lookup_core.dimension.default_row import default_row
from lookup_core.dimension.dimension_events import (
    NO_EFFECTS,
    BatchId,
    Delivery,
    Effects,
    FetchedRows,
    LookupId,
    LookupRequest,
    QueryOrder,
    Submitted,
)
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.freshness.server_identity import ServerEpoch
from lookup_core.protection.connection_shares import Ticket
from lookup_core.rate_limits import EventRateLimit
from lookup_core.settings import CacheMode, CacheSettings, CacheShare, DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin
from lookup_core.table.table_load import TableLoad
from service.engine.backend_call import BackendCalls
from service.engine.gathering import Deliver
from service.engine.observer import QueryStatus
from service.engine.pause import jitter
from service.engine.recent_errors import DimensionRecord
from service.engine.schema_watch import SchemaWatch
from service.engine.tracer import CallerSpan, QuerySpan, TracedQuery, Tracer
from service.engine.warmup import Warmup
from service.resources.shared_memory import SharedCaches, SharedMemory

log = structlog.get_logger()

_PROBE_TIMEOUT_S = 1.0
# Errors of queries after which the table may differ from its description.
_SCHEMA_ERRORS = frozenset(
    {ErrorCode.SCHEMA_CHANGED, ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionParts:
    """What outlives the schema of a dimension."""

    settings: DimensionSettings
    backend: BackendCalls
    record: DimensionRecord
    tracer: Tracer
    clock: Callable[[], float]
    schema_watch: SchemaWatch
    shared_caches: SharedCaches
    feed_trust: FeedTrust
    warmup: Warmup
    is_due: asyncio.Event  # a step is due before the time that the last one returned

    @property
    def name(self) -> str:
        """The name of the dimension."""
        return self.settings.name


@dataclass(frozen=True, slots=True)
class Caller:
    """Receives the answers to one lookup; `span` is set if it is traced."""

    deliver: Deliver
    span: CallerSpan | None
    started_at: float


@dataclass(frozen=True, slots=True)
class _RunningQuery:
    """The task of a query, and its connection."""

    task: asyncio.Task[None]
    connection: Ticket


class RunningDimension:
    """Carries out the decisions of one state; used by one event loop only.

    Raises BackendError if the default row does not fit the schema.
    """

    def __init__(self, schema: DimensionSchema, parts: DimensionParts) -> None:
        self.schema = schema
        self.parts = parts
        settings = parts.settings
        seed = random.getrandbits(63)
        default = None
        if settings.default is not None:
            default = default_row(settings.default, schema.columns)
        self._memory: SharedMemory | None = None
        if _why_private(settings.cache) is None:
            description = CacheDescription(schema, seed, settings.cache, default)
            self._memory = parts.shared_caches.new(settings.name, description)
        self.state = DimensionState(
            settings,
            schema,
            seed=seed,
            default=default,
            memory=self._memory,
            feed_trust=parts.feed_trust,
        )
        if self._memory is not None:
            parts.shared_caches.add(self._memory, self.state.local.cache)
        self._callers: dict[LookupId, Caller] = {}
        self._queries: dict[BatchId, _RunningQuery] = {}
        self._logs = EventRateLimit()

    # Lookups

    @property
    def is_waited_for(self) -> bool:
        """Whether some lookup has not got its last answer yet."""
        return bool(self._callers)

    def submit(self, request: LookupRequest, caller: Caller) -> Submitted:
        """Look up keys; the answers that are not known at once are delivered to the caller.

        Raises Overloaded if too many keys wait.
        """
        submitted = self.state.submit(request, caller.started_at)
        self.parts.record.errors.on_answers(submitted.answers)
        if submitted.is_done:
            self.observe_end(caller.started_at)
        else:
            self._callers[request.id] = caller
        if submitted.is_queued:
            self.parts.is_due.set()
        return submitted

    def leave(self, lookup_id: LookupId) -> None:
        """The caller of a lookup has left; a no-op if the lookup has ended."""
        if self._callers.pop(lookup_id, None) is not None:
            self._carry_out(self.state.leave(lookup_id))

    # Time, changes and loads

    def step(self, tasks: asyncio.TaskGroup) -> float | None:
        """Send queries, end lookups, settle the cache; returns when the next step is due."""
        now, state = self.parts.clock(), self.state
        self._perform(state.expire(now))
        if state.guard.start_probe_if_due(now):
            tasks.create_task(self._probe())
        query_at = self._send_queries(tasks, now)
        return earliest(query_at, state.next_deadline(), state.local.cache.settle(now))

    def on_changes(self, changes: Sequence[Change], origin: InvalidationOrigin) -> None:
        """Apply changes of rows; a change of the whole table may have changed its description."""
        if any(isinstance(change, TableChange) for change in changes):
            self.parts.schema_watch.is_requested.set()
        self._carry_out(self.state.on_changes(changes, origin, self.parts.clock()))

    def on_watermark(self, watermark_ms: int) -> None:
        """All changes before this event time are applied."""
        self._carry_out(self.state.on_watermark(watermark_ms, self.parts.clock()))

    def end_load(self, load: TableLoad) -> None:
        """End a load of the table; lookups that waited for it go on."""
        self.state.end_load(load)
        self._carry_out(NO_EFFECTS)

    def on_server(self, server: ServerEpoch) -> None:
        """A server has answered; one of a later epoch may lack changes of the former one."""
        now, former = self.parts.clock(), self.state.servers.lookups
        removed = self.state.on_server(server, now)
        if removed is not None and self._logs.is_due("failover", now):
            log.warning(
                "dimension.failover",
                dimension=self.parts.name,
                before=str(former.identity),
                now=str(server.identity),
                forgotten=removed,
            )

    @property
    def is_busy(self) -> bool:
        """Whether the backend has more to do than it can, or does not respond."""
        return self.state.guard.is_open or self.parts.backend.connections.is_awaited

    # The schema

    def renew(self, schema: DimensionSchema) -> None:
        """Take an equal description; remove all rows if they may look different now.

        An enum label that was renamed is an example.
        """
        self.on_server(schema.server)
        if not schema.has_rows_of(self.schema):
            removed = self.state.invalidate(None, InvalidationOrigin.SCHEMA)
            log.warning("dimension.rows_changed", dimension=self.parts.name, forgotten=removed)
        self.schema = schema

    def end(self, code: ErrorCode) -> int:
        """The schema is no longer valid: end all lookups with this error, remove all rows.

        No reader uses the shared cache any more. Returns the number of cached entries removed.
        """
        ended = self.state.abandon(code, self.parts.clock())
        self._carry_out(ended)
        self.parts.backend.connections.withdraw()  # no step takes what a query waited for
        if self._memory is not None:
            self.parts.shared_caches.remove(self._memory)
        return ended.removed

    def stop(self) -> None:
        """End all keys that wait for changes with `schema_changed`; no step follows."""
        self._carry_out(self.state.end_waits(ErrorCode.SCHEMA_CHANGED))
        self.parts.backend.connections.withdraw()

    # What is seen of it

    def statistics(self) -> DimensionStatistics:
        """Levels and totals now."""
        statistics, memory = self.state.statistics(), self._memory
        if memory is not None:
            shared = replace(
                statistics.shared,
                why_private=memory.why_private,
                folder=self.shared_folder,
                bytes=memory.file_bytes,
            )
        else:
            why = _why_private(self.parts.settings.cache) or self.parts.shared_caches.why_private
            shared = replace(statistics.shared, why_private=why)
        return replace(statistics, shared=shared)

    @property
    def shared_folder(self) -> str | None:
        """The folder of the shared cache, as clients know it; None if it is not shared."""
        if self._memory is None or self._memory.why_private is not None:
            return None
        return self.parts.shared_caches.offered(self._memory)

    # Queries

    def _send_queries(self, tasks: asyncio.TaskGroup, now: float) -> float | None:
        """Send the queries that are due; returns when the next one is due.

        While all connections are in use, no batch is formed: its keys are still gathered, and its
        time does not begin. A free connection wakes the dimension.
        """
        connections = self.parts.backend.connections
        while (query_at := self.state.next_query_at()) is not None and query_at <= now:
            connection = connections.take(self.parts.is_due.set)
            if connection is None:
                return None
            order = self.state.next_order(now)
            if order is None:  # no lookup waits for its keys any more
                connections.release(connection)
                continue
            task = tasks.create_task(self._query(order, connection))
            self._queries[order.id] = _RunningQuery(task, connection)
        connections.withdraw()
        return query_at

    async def _query(self, order: QueryOrder, connection: Ticket) -> None:
        try:
            effects = await self._answered(order, connection)
        except BackendError as error:
            name = self.parts.name
            log.warning("query.failed", dimension=name, code=error.code, detail=error.detail)
            effects = self.state.on_failure(
                order.id, code=error.code, now=self.parts.clock(), jitter=jitter()
            )
        finally:
            self._queries.pop(order.id, None)
        self._carry_out(effects)

    async def _answered(self, order: QueryOrder, connection: Ticket) -> Effects:
        """The effects of a query's rows; of a second attempt if the schema was in doubt."""
        connections = self.parts.backend.connections
        try:
            return await self._attempt(order)
        except BackendError as error:
            if error.code not in _SCHEMA_ERRORS:
                raise
            failure = error
        finally:
            connections.release(connection)  # the description takes one itself
        if not await self.parts.schema_watch.describe_again():
            raise failure  # if the schema has changed, the state ends this query
        async with connections.for_check():
            return await self._attempt(order)

    async def _attempt(self, order: QueryOrder) -> Effects:
        known = self.state.local.known_rows(order.keys, self.parts.clock())
        if known is not None:  # the query waited for a load, which has ended
            return self._on_rows(order, known)
        with self._observed(order) as span:
            fetched = await self.parts.backend.fetch(order, self.schema)
            if span is not None:  # those that joined meanwhile
                span.link(self._traced_callers(order.id))
            return self._on_rows(order, fetched)

    @contextmanager
    def _observed(self, order: QueryOrder) -> Iterator[QuerySpan | None]:
        """Record and trace the attempt in the block, whatever its result; errors pass through."""
        parts, keys = self.parts, order.keys.num_rows
        started_at = self.parts.clock()
        span = None
        if parts.tracer.is_on:
            query = TracedQuery(self.parts.name, keys, order.tries)
            span = parts.tracer.begin_query(query, self._traced_callers(order.id))
        result: QueryStatus = QueryStatus.CANCELLED
        code: ErrorCode | None = None
        try:
            yield span
            result = QueryStatus.OK
        except BackendError as error:
            parts.record.errors.on_query_failed(error)
            code, result = error.code, QueryStatus.of_failure(error.code)
            raise
        finally:
            seconds = self.parts.clock() - started_at
            parts.record.query_ended(self.parts.name, keys=keys, seconds=seconds, result=result)
            if span is not None:
                span.link(self._traced_callers(order.id))
                span.end(result, code)

    def _on_rows(self, order: QueryOrder, fetched: FetchedRows) -> Effects:
        self.on_server(fetched.server)
        for unfit in fetched.unfit:
            self._on_unfit(BackendError(unfit.code, unfit.detail))
        try:
            return self.state.on_rows(order.id, fetched, now=self.parts.clock())
        except Exception as error:
            # The border of a task: rows that Arrow cannot hold fail their query, not the process.
            log.exception("query.undeliverable", dimension=self.parts.name)
            raise BackendError(ErrorCode.INTERNAL, "the rows cannot be delivered") from error

    def _on_unfit(self, error: BackendError) -> None:
        self.parts.record.errors.on_query_failed(error)
        if self._logs.is_due(error.code, self.parts.clock()):
            log.warning(
                "query.failed", dimension=self.parts.name, code=error.code, detail=error.detail
            )

    async def _probe(self) -> None:
        error: ErrorCode | None = None
        try:
            await self.parts.backend.probe(timeout_s=_PROBE_TIMEOUT_S)
        except BackendError as failure:
            error = failure.code
        else:
            log.info("dimension.backend_is_back", dimension=self.parts.name)
        self.state.guard.on_probe(error, now=self.parts.clock(), jitter=jitter())
        self._carry_out(NO_EFFECTS)

    def _traced_callers(self, batch_id: BatchId) -> list[CallerSpan]:
        # Background refreshes have no callers.
        found = (self._callers.get(lookup_id) for lookup_id in self.state.callers(batch_id))
        return [caller.span for caller in found if caller is not None and caller.span is not None]

    def _carry_out(self, effects: Effects) -> None:
        """Perform the effects of an event, and let a step follow.

        After any event a deadline may be earlier, or a slot free.
        """
        self._perform(effects)
        self.parts.is_due.set()

    def _perform(self, effects: Effects) -> None:
        """Deliver answers and cancel queries."""
        self._deliver(effects.deliveries)
        for batch_id in effects.cancelled:
            # Removed here: a task that is cancelled before its first step runs no `finally`.
            query = self._queries.pop(batch_id, None)
            if query is not None:  # else it was cancelled with the task group
                query.task.cancel()
                self.parts.backend.connections.release(query.connection)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.parts.record.errors.on_answers([delivery.answer for delivery in deliveries])
        for delivery in deliveries:
            caller = self._callers[delivery.lookup_id]
            if delivery.is_last:
                del self._callers[delivery.lookup_id]
                self.observe_end(caller.started_at)
            caller.deliver(delivery)

    def observe_end(self, started_at: float) -> None:
        """Report that a lookup has its last answer."""
        observer = self.parts.record.observer
        if observer is not None:
            observer.lookup_ended(self.parts.name, seconds=self.parts.clock() - started_at)


def _why_private(cache: CacheSettings) -> str | None:
    """Why the settings keep workers from the cache; None if they do not."""
    if cache.mode is CacheMode.NONE:
        return "cache.mode is none"
    return "cache.share is off" if cache.share is CacheShare.OFF else None
