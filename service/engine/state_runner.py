"""One `DimensionState` at work: its queries, its probes, and those who wait for its answers.

No decision is made here, and no rows are looked at: events go to the state, its effects are carried
out. It lives as long as the schema that it was made for; what follows is another runner's.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

import structlog

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.row_cache import Bookmark, Hit
from lookup_core.changelog.change_decoder import Change
from lookup_core.dimension.dimension_events import Effects, LookupRequest, QueryOrder
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import InvalidationOrigin
from lookup_core.warning_gate import WarningGate
from service.connectors.ports.backend import Backend, FetchedRows
from service.engine.backend_call import backend_call, checked_fetch
from service.engine.gathering import Deliver, Submitted
from service.engine.observer import QueryStatus
from service.engine.pause import jitter
from service.engine.recent_errors import DimensionRecord
from service.engine.tracer import CallerSpan, QuerySpans, Tracer

log = structlog.get_logger()

_PROBE_TIMEOUT_S = 1.0
# What a query is refused with when the table is not, or may not be, what was described.
_DOUBTFUL = frozenset({ErrorCode.SCHEMA_CHANGED, ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What all runners of one dimension work with."""

    settings: DimensionSettings
    backend: Backend
    record: DimensionRecord
    tracer: Tracer
    clock: Callable[[], float]
    is_unchanged: Callable[[], Awaitable[bool]]  # whether the store still describes itself so
    wake: Callable[[], None]  # there is something to do before the time that `step` told


@dataclass(slots=True)
class _Caller:
    deliver: Deliver
    started_at: float
    asked_by: CallerSpan | None


class StateRunner:
    """Carries out what a state for this schema decides; used by one event loop only.

    Raises BackendError when the default row does not fit the schema.
    """

    def __init__(self, schema: DimensionSchema, parts: RunnerParts) -> None:
        self.schema = schema
        self.state = DimensionState(parts.settings, schema, seed=random.getrandbits(63))
        self._parts = parts
        self._name = parts.settings.name
        self._callers: dict[LookupId, _Caller] = {}
        self._queries: dict[BatchId, asyncio.Task[None]] = {}
        self._spans = QuerySpans(self._name, parts.tracer, self._followed_askers)
        self._store = ""  # which one answered last
        self._former_stores: set[str] = set()  # which answered before it
        self._failover_warnings = WarningGate()
        self._reads_stale_rows_anew = parts.settings.cache.stale_while_revalidate_s > 0

    @property
    def is_waited_for(self) -> bool:
        """Whether a lookup has not got its last answer yet."""
        return bool(self._callers)

    def step(self, tasks: asyncio.TaskGroup) -> float | None:
        """Send what is due and end what is overdue; until when there is nothing more to do."""
        now = self._parts.clock()
        self._carry_out(self.state.expire(now))
        if self.state.start_probe_if_due(now):
            tasks.create_task(self._probe())
        while (order := self.state.next_order(now)) is not None:
            self._queries[order.id] = tasks.create_task(self._query(order))
        return self.state.next_deadline()

    def submit(self, request: LookupRequest, deliver: Deliver, *, now: float) -> Submitted:
        """Ask for keys; what is not answered at once goes to `deliver`.

        Raises Overloaded when too many keys wait.
        """
        answers = self.state.submit(request, now)
        self._parts.record.errors.on_answers(answers)
        is_done = sum(answer.size for answer in answers) == request.keys.size
        if is_done:
            self._tell_end(now)
        else:
            # Opaque to the core, which only carries it: it is what `Dimension.submit` was given.
            span = cast("CallerSpan | None", request.asked_by)
            self._callers[request.id] = _Caller(deliver, now, span)
        if not is_done or (self._reads_stale_rows_anew and any(map(_has_stale_rows, answers))):
            self._parts.wake()  # stale rows are read anew, too, though nobody waits
        return Submitted(request.id, answers, is_done)

    def hit(self, value: object) -> Hit | None:
        """A lookup of one key that is over at once; None, if `submit` has to find out."""
        now = self._parts.clock()
        hit = self.state.hit(value, now)
        if hit is not None:
            self._tell_end(now)
        return hit

    def revisit(self, bookmark: Bookmark) -> float | None:
        """The same for a row that was a hit: its age; None, if `hit` has to find out."""
        now = self._parts.clock()
        age_s = self.state.revisit(bookmark, now)
        if age_s is not None:
            self._tell_end(now)
        return age_s

    def on_changes(self, changes: Sequence[Change], origin: InvalidationOrigin) -> None:
        """Rows have changed in the store."""
        self.state.changes.on_changes(changes, origin, self._parts.clock())
        self._parts.wake()  # keys that waited for their rows may be asked again

    def trust(self, *, is_trusted: bool) -> None:
        """Whether all changes are told, as it is without another word."""
        self.state.changes.trust(is_trusted=is_trusted)

    def end_load(self) -> None:
        """A load is over, well or not: go on with the lookups that waited for it."""
        assert self.state.whole is not None  # it is what was loaded
        self.state.whole.end_load()
        self._parts.wake()

    def leave(self, lookup_id: LookupId) -> None:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        if self._callers.pop(lookup_id, None) is not None:
            self._carry_out(self.state.leave(lookup_id))

    async def is_unchanged(self) -> bool:
        """Whether the store, asked anew, still describes itself as this runner has it."""
        return await self._parts.is_unchanged()

    def end(self, code: ErrorCode) -> int:
        """The schema is no longer true: end all lookups with this error, and forget all rows.

        Returns how many cached entries went. The same schema, come back, may be worked for again.
        """
        # First, so that nothing of the former table stays: another one may come under its name.
        forgotten = self.state.invalidate(None, InvalidationOrigin.SCHEMA)
        self._carry_out(self.state.abandon(code))
        return forgotten

    async def _query(self, order: QueryOrder) -> None:
        try:
            effects = await self._rows(order)
        except BackendError as error:
            log.warning("query.failed", dimension=self._name, code=error.code, detail=error.detail)
            effects = self.state.on_failure(
                order.id, code=error.code, now=self._parts.clock(), jitter=jitter()
            )
        finally:
            self._queries.pop(order.id, None)
            self._parts.wake()  # a slot is free
        self._carry_out(effects)

    async def _rows(self, order: QueryOrder) -> Effects:
        try:
            return await self._attempt(order)
        except BackendError as error:
            # If the schema has changed, it is ended meanwhile; so is this query.
            if error.code not in _DOUBTFUL or not await self._parts.is_unchanged():
                raise
        return await self._attempt(order)

    async def _attempt(self, order: QueryOrder) -> Effects:
        started_at = self._parts.clock()
        if (known := self._known_rows(order, started_at)) is not None:
            return self._landed(order, known)
        result = QueryStatus.CANCELLED
        try:
            with self._spans.around(order):
                fetched = await checked_fetch(self._parts.backend, order, self.schema)
            effects = self._landed(order, fetched)
            result = QueryStatus.OK
        except BackendError as error:
            self._parts.record.errors.on_query_failed(error)
            result = QueryStatus.of_failure(error.code)
            raise
        finally:
            self._parts.record.query_ended(
                self._name,
                keys=order.keys.num_rows,
                seconds=self._parts.clock() - started_at,
                result=result,
            )
        return effects

    def _known_rows(self, order: QueryOrder, now: float) -> FetchedRows | None:
        """What the table that is held whole by now knows of all these keys, which waited for it."""
        whole = self.state.whole
        known = None if whole is None else whole.rows_of(order.keys, now)
        if known is None:
            return None
        return FetchedRows(known.ordinals, known.rows, read_at=known.read_at)

    def _landed(self, order: QueryOrder, fetched: FetchedRows) -> Effects:
        self._note_store(fetched.store)
        try:
            return self.state.on_rows(
                order.id,
                ordinals=fetched.ordinals,
                rows=fetched.rows,
                snapshot=fetched.snapshot,
                read_at=fetched.read_at,
                now=self._parts.clock(),
            )
        except Exception as error:
            # The border of a task: rows that Arrow cannot hold fail their query, not the process.
            log.exception("query.undeliverable", dimension=self._name)
            raise BackendError(ErrorCode.INTERNAL, "the rows cannot be delivered") from error

    def _note_store(self, store: str) -> None:
        """Forget everything when another store answers: it may have lost what this one had.

        Not when an older one does again: a session may outlive the promotion of its server.
        """
        if store in self._former_stores:
            return
        if store and self._store not in {"", store}:
            self._former_stores.add(self._store)
            rows = self.state.invalidate(None, InvalidationOrigin.FAILOVER)
            if self._failover_warnings.is_due("failover", self._parts.clock()):
                log.warning(
                    "dimension.failover",
                    dimension=self._name,
                    before=self._store,
                    now=store,
                    forgotten=rows,
                )
        self._store = store or self._store

    async def _probe(self) -> None:
        error: ErrorCode | None = None
        try:
            call = self._parts.backend.probe(timeout_s=_PROBE_TIMEOUT_S)
            await backend_call(call, timeout_s=_PROBE_TIMEOUT_S)
        except BackendError as failure:
            error = failure.code
        else:
            log.info("dimension.store_is_back", dimension=self._name)
        self.state.on_probe(error, now=self._parts.clock(), jitter=jitter())
        self._parts.wake()  # queries may go, or the next probe has its time

    def _followed_askers(self, batch_id: BatchId) -> list[CallerSpan]:
        # Not all are callers: keys are also read anew for the cache's own sake.
        callers = map(self._callers.get, self.state.askers(batch_id))
        spans = (None if each is None else each.asked_by for each in callers)
        return [each for each in spans if each is not None]

    def _carry_out(self, effects: Effects) -> None:
        self._parts.record.errors.on_answers([each.answer for each in effects.deliveries])
        for delivery in effects.deliveries:
            caller = self._callers[delivery.lookup_id]
            if delivery.is_last:
                del self._callers[delivery.lookup_id]
                self._tell_end(caller.started_at)
            caller.deliver(delivery.answer, delivery.is_last)
        for batch_id in effects.cancelled:
            # Not left to the task: cancelled before its first step, it never gets to its end.
            query = self._queries.pop(batch_id, None)
            if query is not None:  # else it was cancelled with all others, by who ran the dimension
                query.cancel()
            self._parts.wake()  # a slot is free

    def _tell_end(self, started_at: float) -> None:
        seconds = self._parts.clock() - started_at
        self._parts.record.lookup_ended(self._name, seconds=seconds)


def _has_stale_rows(answer: Answer) -> bool:
    return bool((answer.outcomes == Outcome.STALE).any())
