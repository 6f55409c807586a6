"""One dimension at work: owns its clock, its timer and its queries; the core decides.

No decision is made here, and no rows are looked at: events go to `DimensionState`, its effects are
carried out.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import structlog

from lookup_core.answer import Answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import Effects, LookupRequest, QueryOrder
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.explanation import Explanation
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin, no_statistics
from service.backends.interface import Backend, FetchedRows
from service.engine.backend_call import backend_call
from service.engine.fetching import checked_fetch
from service.engine.observer import NullObserver, Observer, QueryResult
from service.engine.schema_watch import SchemaWatch

log = structlog.get_logger()

Deliver = Callable[[Answer, bool], None]  # an answer, and whether it is the lookup's last

_PROBE_TIMEOUT_S = 1.0

HTTP_CHANNEL = ChannelId(0)  # all plain requests take turns as one channel


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a lookup got at once; more is delivered unless `is_done`."""

    lookup_id: LookupId
    answers: list[Answer]
    is_done: bool


@dataclass(slots=True)
class _Caller:
    deliver: Deliver
    started_at: float


class Dimension:
    """Answers lookups of one dimension while `run` runs; used by one event loop only."""

    def __init__(
        self,
        settings: DimensionSettings,
        backend: Backend,
        *,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._backend = backend
        self._observer = observer or NullObserver()
        self._clock = clock
        self._schema = SchemaWatch(settings.name, backend)
        self._state: DimensionState | None = None
        self._ids = count(1)
        self._callers: dict[LookupId, _Caller] = {}
        self._queries: dict[BatchId, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        """The dimension's name in the configuration."""
        return self.settings.name

    @property
    def is_waited_for(self) -> bool:
        """Whether a lookup has not got its last answer yet."""
        return bool(self._callers)

    @property
    def schema(self) -> DimensionSchema:
        """Key and columns; raises BackendError while the backend has not told them yet."""
        return self._schema.known()

    async def run(self) -> None:
        """Learn the schema, then send queries and end what is overdue, until cancelled.

        Cancellation ends all queries; lookups that wait then get no more answers.
        """
        schema = await self._schema.learn()
        self._state = DimensionState(self.settings, schema, seed=random.getrandbits(63))
        async with asyncio.TaskGroup() as tasks:
            while True:
                now = self._clock()
                self._carry_out(self._state.expire(now))
                if self._state.start_probe_if_due(now):
                    tasks.create_task(self._probe(self._state))
                while (order := self._state.next_order(now)) is not None:
                    self._queries[order.id] = tasks.create_task(self._query(self._state, order))
                await self._pause(self._state.next_deadline())

    async def wait_until_described(self, timeout_s: float) -> DimensionSchema:
        """The schema, as soon as the backend tells it.

        Raises BackendError with the last fault when the time is over.
        """
        return await self._schema.wait(timeout_s)

    def submit(
        self,
        keys: TypedKeys,
        *,
        columns: Sequence[str] | None,
        channel: ChannelId,
        timeout_s: float,
        deliver: Deliver,
    ) -> Submitted:
        """Ask for keys; what is not answered at once goes to `deliver`, which must not block.

        Raises BackendError before the schema is known, InvalidRequest for an unknown column,
        Overloaded when too many keys wait.
        """
        schema, state = self._schema.known(), self._known_state()
        now = self._clock()
        names = tuple(schema.select(columns).names)
        lookup_id = LookupId(next(self._ids))
        request = LookupRequest(lookup_id, channel, keys, names, now + timeout_s)
        answers = state.submit(request, now)
        is_done = sum(answer.size for answer in answers) == keys.size
        if is_done:
            self._observer.lookup_ended(self.name, seconds=self._clock() - now)
        else:
            self._callers[lookup_id] = _Caller(deliver, now)
            self._wake.set()
        return Submitted(lookup_id, answers, is_done)

    def leave(self, lookup_id: LookupId) -> None:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        if self._callers.pop(lookup_id, None) is not None:
            self._carry_out(self._known_state().leave(lookup_id))

    def count_timed_out(self, keys: int) -> None:
        """Note that so many keys had to wait too long to be submitted."""
        self._known_state().count_timed_out(keys)

    async def lookup(
        self, keys: TypedKeys, *, columns: Sequence[str] | None, timeout_s: float | None
    ) -> list[Answer]:
        """All answers to the keys, each position exactly once, within `timeout_s`.

        Raises as `submit` does. Cancellation leaves the shared flights to the others.
        """
        timeout_s = self.settings.timeout_s if timeout_s is None else timeout_s
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001 -- the shape of Deliver
            submitted.answers.append(answer)
            if is_last and not ended.done():  # done: cancelled, and the caller has not run yet
                ended.set_result(None)

        submitted = self.submit(
            keys, columns=columns, channel=HTTP_CHANNEL, timeout_s=timeout_s, deliver=deliver
        )
        if not submitted.is_done:
            try:
                await ended
            finally:
                self.leave(submitted.lookup_id)
        return submitted.answers

    def explain(self, keys: TypedKeys) -> list[Explanation]:
        """Where the answer to each key would come from; raises BackendError without a schema."""
        return self._known_state().explain(keys, self._clock())

    def invalidate(self, keys: TypedKeys | None, *, origin: InvalidationOrigin) -> int:
        """Forget keys, or all for None; returns how many cached entries went."""
        return self._known_state().invalidate(keys, origin)

    def limit_cache(self, share: float) -> None:
        """Let the cache hold so much of its bound from now on, 0 to 1; what is too much goes."""
        if self._state is not None:
            self._state.limit_cache(share)

    def statistics(self) -> DimensionStatistics:
        """Levels and totals; zeros before the schema is known."""
        if self._state is None:
            return no_statistics(self.settings)
        return self._state.statistics(self._clock())

    def _known_state(self) -> DimensionState:
        self._schema.known()
        assert self._state is not None  # made in the same step that makes the schema known
        return self._state

    async def _pause(self, until: float | None) -> None:
        delay_s = None if until is None else max(0.0, until - self._clock())
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass  # the deadline itself is what was waited for
        self._wake.clear()

    async def _query(self, state: DimensionState, order: QueryOrder) -> None:
        started_at = self._clock()
        result = QueryResult.CANCELLED
        try:
            fetched = await checked_fetch(self._backend, order, self.schema)
            effects = self._landed(state, order, fetched)
            result = QueryResult.OK
            self._carry_out(effects)
        except BackendError as error:
            is_timeout = error.code is ErrorCode.TIMEOUT
            result = QueryResult.TIMEOUT if is_timeout else QueryResult.ERROR
            log.warning("query.failed", dimension=self.name, code=error.code, detail=error.detail)
            jitter = random.random()  # noqa: S311 -- spreads retries, guards nothing
            now = self._clock()
            self._carry_out(state.on_failure(order.id, code=error.code, now=now, jitter=jitter))
        finally:
            self._queries.pop(order.id, None)
            self._wake.set()  # a slot is free
            self._observer.query_ended(
                self.name,
                keys=order.keys.num_rows,
                seconds=self._clock() - started_at,
                result=result,
            )

    async def _probe(self, state: DimensionState) -> None:
        error: ErrorCode | None = None
        try:
            call = self._backend.probe(timeout_s=_PROBE_TIMEOUT_S)
            await backend_call(call, timeout_s=_PROBE_TIMEOUT_S)
        except BackendError as failure:
            error = failure.code
        else:
            log.info("dimension.store_is_back", dimension=self.name)
        jitter = random.random()  # noqa: S311 -- spreads probes, guards nothing
        state.on_probe(error, now=self._clock(), jitter=jitter)
        self._wake.set()  # queries may go, or the next probe has its time

    def _landed(self, state: DimensionState, order: QueryOrder, fetched: FetchedRows) -> Effects:
        try:
            return state.on_rows(
                order.id, ordinals=fetched.ordinals, rows=fetched.rows, now=self._clock()
            )
        except Exception as error:
            # The border of a task: rows that Arrow cannot hold fail their query, not the process.
            log.exception("query.undeliverable", dimension=self.name)
            raise BackendError(ErrorCode.INTERNAL, "the rows cannot be delivered") from error

    def _carry_out(self, effects: Effects) -> None:
        for delivery in effects.deliveries:
            caller = self._callers[delivery.lookup_id]
            if delivery.is_last:
                del self._callers[delivery.lookup_id]
                seconds = self._clock() - caller.started_at
                self._observer.lookup_ended(self.name, seconds=seconds)
            caller.deliver(delivery.answer, delivery.is_last)
        for batch_id in effects.cancelled:
            # Not left to the task: cancelled before its first step, it never gets to its end.
            self._queries.pop(batch_id).cancel()
            self._wake.set()  # a slot is free
