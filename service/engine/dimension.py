"""One dimension: answers lookups while its backend, table and schema may fail or change.

Owns the timer and the changes of the schema. The core makes the decisions; a `RunningDimension`
carries them out for one schema.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pyarrow as pa
import structlog

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.dimension_cache import Hit
from lookup_core.dimension.dimension_events import ChannelId, LookupId, LookupRequest, Submitted
from lookup_core.dimension.explanation import Explanation, explain
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.freshness.feed_trust import FeedTrust
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import TypedKeys, column_type
from lookup_core.lookup_options import LookupOptions
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import (
    DimensionStatistics,
    InvalidationOrigin,
    LoadStatistics,
    RefreshStatistics,
    no_statistics,
    summed_refresh,
    summed_statistics,
)
from service.connectors.ports.backend import Backend
from service.engine.backend_call import BackendCalls
from service.engine.gathering import FIRST_KEYS, AnswerGathering, Deliver, Take
from service.engine.observer import Observer
from service.engine.pause import pause
from service.engine.recent_errors import DimensionRecord
from service.engine.refresher import Refresher, RefreshSources, not_refreshed
from service.engine.running_dimension import Caller, DimensionParts, RunningDimension
from service.engine.schema_watch import SchemaOwner, SchemaWatch
from service.engine.shared_connections import ConnectionShare, unlimited
from service.engine.tracer import CallerSpan, NullTracer, Tracer
from service.engine.warmup import Warmup
from service.resources.shared_memory import SharedCaches, boot_time

log = structlog.get_logger()

_OF_KEY_VALUES = frozenset({ErrorCode.TYPE, ErrorCode.INVALID_TEXT, ErrorCode.KEY_REJECTED})

HTTP_CHANNEL = ChannelId(0)  # all HTTP requests take turns as one channel


@dataclass(frozen=True, slots=True)
class _Present:
    """What a described dimension has."""

    running: RunningDimension
    refresher: Refresher
    refreshing: asyncio.Task[None]

    def end(self, code: ErrorCode) -> int:
        """End all lookups with this error; returns the number of cached entries removed."""
        self.refreshing.cancel()  # changes may not be reported: no row is loaded meanwhile
        return self.running.end(code)


class Dimension:
    """Answers lookups while `run` runs; used by one event loop only.

    If the columns change, lookups under way end with `schema_changed`, and later ones get the new
    columns. While the table is gone or may not be read, methods raise BackendError.
    """

    def __init__(  # noqa: PLR0913 -- the parts of one dimension
        self,
        settings: DimensionSettings,
        backend: Backend,
        *,
        connections: ConnectionShare | None = None,
        sources: RefreshSources | None = None,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
        shared_caches: SharedCaches | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """Without `connections` the backend has as many as `max_in_flight` allows."""
        self._connections = connections or unlimited(settings.name)
        max_in_flight = min(settings.batch.max_in_flight, self._connections.limit)
        settings = replace(settings, batch=replace(settings.batch, max_in_flight=max_in_flight))
        self.settings, self.name = settings, settings.name
        self.backend = backend
        self.record = DimensionRecord(observer, clock)
        self._clock, self._sources = clock, sources or RefreshSources()
        calls = BackendCalls(backend, self._connections)
        self.schema = SchemaWatch(settings.name, calls, clock=clock)
        self._parts = DimensionParts(
            settings=settings,
            backend=calls,
            record=self.record,
            tracer=tracer or NullTracer(),
            clock=clock,
            schema_watch=self.schema,
            shared_caches=shared_caches or SharedCaches(None),
            feed_trust=FeedTrust(),
            warmup=Warmup(settings, began_at=clock()),
            is_due=asyncio.Event(),
        )
        self._present: _Present | None = None  # while the schema is known
        self._former = no_statistics(settings)  # those of all former schemas
        self._refreshed = not_refreshed(settings, self._sources)  # by them
        self._cache_share = 1.0
        self._late_keys = 0  # whose deadline passed before they were submitted
        self._first_keys = FIRST_KEYS
        self._ids = map(LookupId, count(1))

    @property
    def is_waited_for(self) -> bool:
        """Whether some lookup has not got its last answer yet."""
        return self._present is not None and self._present.running.is_waited_for

    async def run(self) -> None:
        """Describe the table, then send queries and end overdue lookups, until cancelled.

        Cancellation ends all queries. Lookups that wait for a watermark end with
        `schema_changed`; all others get no more answers.
        """
        is_due = self._parts.is_due
        try:
            async with asyncio.TaskGroup() as tasks:
                owner = SchemaOwner(partial(self._on_described, tasks), self._on_unfit)
                tasks.create_task(self.schema.run(owner))
                while True:
                    present = self._present
                    due_at = None if present is None else present.running.step(tasks)
                    await pause(is_due, None if due_at is None else due_at - self._clock())
                    is_due.clear()
        finally:
            if self._present is not None:
                self._present.running.stop()

    async def described_again(self, timeout_s: float) -> DimensionSchema:
        """The schema after another description, as for a column that is not known yet.

        Concurrent calls share a description; there is at most one a second. After `timeout_s`, the
        schema as it was. Raises BackendError without a schema.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.schema.describe_again()
        return self.schema.known()

    def submit(  # noqa: PLR0913 -- the parameters of one lookup
        self,
        keys: TypedKeys,
        *,
        columns: Sequence[str] | None,
        channel: ChannelId,
        timeout_s: float,
        deliver: Deliver,
        event_time_ms: int | None = None,
        span: CallerSpan | None = None,
        options: LookupOptions | None = None,
    ) -> Submitted:
        """Look up keys; later answers go to `deliver`, which must not block.

        `options` are those that `check_options` accepts.
        With `event_time_ms`, the largest of the records, the lookup waits for changes up to it.
        Queries for these keys are linked to `span`. Raises BackendError without a schema,
        InvalidRequest for an unknown column, Overloaded if too many keys wait.
        """
        running, now = self._known().running, self._clock()
        request = LookupRequest(
            id=next(self._ids),
            channel=channel,
            keys=keys,
            columns=running.schema.select_names(columns),
            deadline_s=now + timeout_s,
            event_time_ms=event_time_ms,
            options=options,
        )
        return running.submit(request, Caller(deliver, span, now))

    def check_options(self, options: LookupOptions) -> pa.Schema:
        """The columns that lookups with these options need; raises BackendError without a schema.

        Raises InvalidRequest for options that this dimension cannot keep exactly.
        """
        schema = self.schema.known()
        options.check(self.settings, schema, reads_on_request=self.backend.reads_on_request)
        return schema.select(() if options.retry_if is None else (options.retry_if,))

    def leave(self, lookup_id: LookupId) -> None:
        """The caller of a lookup has left; a no-op if the lookup has ended."""
        if self._present is not None:
            self._present.running.leave(lookup_id)

    @property
    def shared_folder(self) -> str | None:
        """The folder of its shared cache, as clients know it; None if it is not shared."""
        return None if self._present is None else self._present.running.shared_folder

    def on_cached(self, outcomes: Mapping[Outcome, int], visited: Slots) -> None:
        """Count lookups that readers of the shared cache have answered, and their visits."""
        if self._present is not None:
            self._present.running.state.on_cached(outcomes, visited)

    def count_timed_out(self, keys: int) -> None:
        """Count keys whose deadline passed before they were submitted."""
        self._late_keys += keys

    async def lookup(
        self,
        keys: TypedKeys,
        *,
        columns: Sequence[str] | None,
        timeout_s: float | None,
        take: Take = lambda _: None,
        span: CallerSpan | None = None,
    ) -> list[Answer]:
        """All answers to the keys, each position exactly once, within `timeout_s`.

        `take` sees each answer as it comes; a SidelookError from it ends the lookup. Raises as
        `submit` does. Cancellation does not affect lookups that share flights.
        """
        timeout_s = self.settings.timeout_s if timeout_s is None else timeout_s
        gathering = AnswerGathering(keys, take, first_keys=self._first_keys)
        try:
            for start, part in gathering.parts():
                with _capacity_of_arrow():
                    submitted = self.submit(
                        part,
                        columns=columns,
                        channel=HTTP_CHANNEL,
                        timeout_s=timeout_s,
                        deliver=gathering.delivery(start),
                        span=span,
                    )
                gathering.on_submitted(start, submitted)
            await gathering.end()
        finally:
            self._first_keys = gathering.first_keys
            for lookup_id in gathering.lookup_ids:
                self.leave(lookup_id)
        return gathering.answers

    def hit(self, value: object) -> Hit | None:
        """The cached row of the key with this value; None if `lookup` is needed.

        For one key it is ten times as fast as `lookup`.
        """
        if self._present is None:
            return None
        now, running = self._clock(), self._present.running
        hit = running.state.local.single_keys.hit(value, now)
        if hit is not None:
            running.observe_end(now)
        return hit

    def explain(self, keys: TypedKeys) -> list[Explanation]:
        """Where the answer to each key would come from; raises BackendError without a schema."""
        return explain(self._known().running.state, keys, self._clock())

    def invalidate(self, keys: TypedKeys | None, *, origin: InvalidationOrigin) -> int:
        """Remove keys, or all for None; returns the number of cached entries removed.

        Raises BackendError without a schema; the cache is empty then.
        """
        return self._known().running.state.invalidate(keys, origin)

    def reload(self) -> None:
        """Load the table again, once its changes are followed; after a load under way.

        Raises InvalidRequest in other modes than full, BackendError without a schema.
        """
        self._known().refresher.reload()

    def explanation(self, code: ErrorCode) -> str:
        """Why keys failed with this code last, and the remedy.

        Names the columns of the key if one of its values is at fault.
        """
        reason = self.record.errors.reason(code)
        if code not in _OF_KEY_VALUES or self._present is None:
            return reason
        columns = (f"{field.name} {column_type(field)}" for field in self.schema.known().key)
        return f"{reason}; the key is ({', '.join(columns)})"

    def cold_reason(self) -> str | None:
        """Why this dimension does not count as started; None if it does."""
        return self._parts.warmup.cold_reason(self._progress(), self._clock())

    def limit_cache(self, share: float) -> None:
        """Limit the cache to a share, 0 to 1, of its configured bytes."""
        self._cache_share = share
        if self._present is not None:
            self._present.running.state.limit_cache(share)

    def statistics(self) -> DimensionStatistics:
        """Levels now and totals since the start."""
        current = no_statistics(self.settings)
        if self._present is not None:
            current = self._present.running.statistics()
        total = summed_statistics(self._former, current)
        late_keys = total.outcomes[Outcome.TIMEOUT] + self._late_keys
        return replace(
            total,
            outcomes={**total.outcomes, Outcome.TIMEOUT: late_keys},
            connection_wait_s=self._connections.waited_s,
        )

    def refresh_statistics(self) -> RefreshStatistics:
        """Its loads, its feed and its staleness now. Reads all cache entries."""
        if self._present is None:
            return self._refreshed
        return summed_refresh(self._refreshed, self._present.refresher.statistics())

    def load_statistics(self) -> LoadStatistics | None:
        """Its loads, in full mode; cheap."""
        return self._progress().load

    def _progress(self) -> RefreshStatistics:
        """Its loads and its feed now, without its staleness."""
        if self._present is None:
            return self._refreshed
        return summed_refresh(self._refreshed, self._present.refresher.progress())

    def _on_described(self, tasks: asyncio.TaskGroup, schema: DimensionSchema) -> None:
        """Start with this schema, unless it is the present one."""
        if self._present is not None and self._present.running.schema.is_same(schema):
            self._present.running.renew(schema)
            return
        running = RunningDimension(schema, self._parts)
        running.state.limit_cache(self._cache_share)
        self._end(ErrorCode.SCHEMA_CHANGED, "dimension.schema_changed")
        refresher = Refresher(running, self._sources)
        refreshing = tasks.create_task(refresher.run())
        self._present = _Present(running, refresher, refreshing)
        self._parts.is_due.set()

    def _on_unfit(self, code: ErrorCode) -> None:
        """End with this error: the table is gone, or may not be read."""
        self._end(code, "dimension.suspended")

    def _end(self, code: ErrorCode, event: str) -> None:
        present, self._present = self._present, None
        if present is None:
            return
        removed = present.end(code)
        log.warning(event, dimension=self.name, code=code, forgotten=removed)
        self._former = summed_statistics(self._former, present.running.statistics())
        self._refreshed = summed_refresh(self._refreshed, present.refresher.statistics())

    def _known(self) -> _Present:
        if self._present is None:
            raise self.schema.last_fault()
        return self._present


@contextmanager
def _capacity_of_arrow() -> Iterator[None]:
    """Refuse cached rows that exceed the capacity of one Arrow answer: no defect."""
    try:
        yield
    except pa.ArrowInvalid as error:
        detail = "the rows are too large for one answer; look up fewer keys"
        raise InvalidRequest(ErrorCode.ANSWER_TOO_LARGE, detail) from error
