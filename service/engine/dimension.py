"""One dimension: answers lookups while its backend, table and schema may fail or change.

Owns the clock, the timer and the changes of the schema. The core makes the decisions; a
`StateRunner` carries them out for one schema.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

import pyarrow as pa
import structlog

from lookup_core.answer import Answer, Outcome
from lookup_core.cache.dimension_cache import Bookmark, Hit
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.explanation import Explanation
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest
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
    summed_statistics,
)
from service.connectors.ports.backend import Backend
from service.engine.backend_call import BackendCalls
from service.engine.gathering import FIRST_KEYS, AnswerGathering, Deliver, Submitted, Take
from service.engine.observer import Observer
from service.engine.pause import pause
from service.engine.recent_errors import DimensionRecord
from service.engine.refresher import Refresher, RefreshSources
from service.engine.schema_watch import SchemaWatch
from service.engine.shared_connections import ConnectionShare, unlimited
from service.engine.state_runner import Caller, RunnerParts, StateRunner
from service.engine.tracer import CallerSpan, NullTracer, Tracer
from service.engine.waiting_for_changes import WaitingForChanges
from service.resources.shared_memory import SharedCaches, boot_time

log = structlog.get_logger()

_OF_KEY_VALUES = frozenset({ErrorCode.TYPE, ErrorCode.INVALID_TEXT, ErrorCode.KEY_REJECTED})

HTTP_CHANNEL = ChannelId(0)  # all HTTP requests take turns as one channel


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
        self.settings = settings
        calls = BackendCalls(backend, self._connections)
        self.record = DimensionRecord(observer, clock)
        self._clock = clock
        self._refresher = Refresher(settings, sources or RefreshSources(), clock=clock)
        self._ids = map(LookupId, count(1))
        self._wake = asyncio.Event()
        self._schema = SchemaWatch(
            settings.name, calls, on_described=self._begin, on_unfit=self._suspend, clock=clock
        )
        self._parts = RunnerParts(
            settings=settings,
            backend=calls,
            record=self.record,
            tracer=tracer or NullTracer(),
            clock=clock,
            is_unchanged=self._schema.is_unchanged,
            describe=self._schema.request,
            shared_caches=shared_caches or SharedCaches(None),
            feed_trust=FeedTrust(),
            wake=self._wake.set,
        )
        self._runner: StateRunner | None = None  # since the first description
        self._lookups: WaitingForChanges | None = None  # those of the runner
        self._tasks: asyncio.TaskGroup | None = None  # while `run` runs
        self._former = no_statistics(settings)  # of all former runners
        self._cache_share = 1.0
        self._first_keys = FIRST_KEYS

    @property
    def name(self) -> str:
        """The dimension's name in the configuration."""
        return self.settings.name

    @property
    def is_waited_for(self) -> bool:
        """Whether some lookup has not got its last answer yet."""
        return self._lookups is not None and self._lookups.is_waited_for

    @property
    def schema(self) -> DimensionSchema:
        """Key and columns; raises BackendError before the first description, or without a table."""
        return self._schema.known()

    @property
    def fault(self) -> BackendError | None:
        """Why there is no schema, without the name of the dimension; None if there is one."""
        return self._schema.fault

    @property
    def uses_index(self) -> bool | None:
        """Whether the backend finds keys without reading all rows; None before a description."""
        return self._parts.backend.uses_index

    async def run(self) -> None:
        """Describe the table, then send queries and end overdue lookups, until cancelled.

        Cancellation ends all queries. Lookups that wait for a watermark end with
        `schema_changed`; all others get no more answers.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._schema.run())
                while True:
                    due_at = None if self._lookups is None else self._lookups.step(tasks)
                    await pause(self._wake, None if due_at is None else due_at - self._clock())
                    self._wake.clear()
        finally:
            if self._lookups is not None:
                self._lookups.end()

    async def wait_until_described(self, timeout_s: float) -> DimensionSchema:
        """The schema; before the first description, waits for it.

        Raises BackendError with the last fault after `timeout_s`, and at once if a table that was
        described is gone.
        """
        return await self._schema.wait(timeout_s)

    async def described_again(self, timeout_s: float) -> DimensionSchema:
        """The schema after another description, as for a column that is not known yet.

        Concurrent calls share a description; there is at most one a second. After `timeout_s`, the
        schema as it was. Raises BackendError without a schema.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._schema.is_unchanged()
        return self._schema.known()

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
        runner, now = self._known_runner(), self._clock()
        request = LookupRequest(
            id=next(self._ids),
            channel=channel,
            keys=keys,
            columns=runner.schema.select_names(columns),
            deadline_s=now + timeout_s,
            event_time_ms=event_time_ms,
            options=options,
        )
        assert self._lookups is not None  # since there is a runner
        return self._lookups.submit(request, Caller(deliver, span), now=now)

    def check_options(self, options: LookupOptions) -> pa.Schema:
        """The columns that lookups with these options need; raises BackendError without a schema.

        Raises InvalidRequest for options that this dimension cannot keep exactly.
        """
        schema, backend = self.schema, self._parts.backend
        options.check(self.settings, schema, reads_on_request=backend.reads_on_request)
        return schema.select(() if options.retry_if is None else (options.retry_if,))

    def leave(self, lookup_id: LookupId) -> None:
        """The caller of a lookup has left; a no-op if the lookup has ended."""
        if self._lookups is not None:
            self._lookups.leave(lookup_id)

    @property
    def shared_folder(self) -> str | None:
        """The folder of its shared cache, as clients know it; None if it is not shared."""
        return None if self._runner is None else self._runner.shared_folder

    def on_cached(self, outcomes: Mapping[Outcome, int], visited: Slots) -> None:
        """Count lookups that readers of the shared cache have answered, and their visits."""
        if self._runner is not None:
            self._runner.state.on_cached(outcomes, visited)

    def count_timed_out(self, keys: int) -> None:
        """Count keys whose deadline passed before they were submitted."""
        if self._runner is not None:
            self._runner.state.count_timed_out(keys)

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
        try:
            return self._known_runner().hit(value)
        except BackendError:  # no schema: `lookup` raises the reason
            return None

    def revisit(self, bookmark: Bookmark) -> float | None:
        """The age in seconds of the row of a former hit; None if `hit` is needed."""
        return None if self._runner is None else self._runner.revisit(bookmark)

    def explain(self, keys: TypedKeys) -> list[Explanation]:
        """Where the answer to each key would come from; raises BackendError without a schema."""
        return self._known_runner().state.explainer.explain(keys, self._clock())

    def invalidate(self, keys: TypedKeys | None, *, origin: InvalidationOrigin) -> int:
        """Remove keys, or all for None; returns the number of cached entries removed.

        Raises BackendError without a schema; the cache is empty then.
        """
        return self._known_runner().state.invalidate(keys, origin)

    def reload(self) -> None:
        """Load the table again, once its changes are followed; after a load under way.

        Raises InvalidRequest in other modes than full, BackendError without a schema.
        """
        self._known_runner()
        self._refresher.reload()

    def explanation(self, code: ErrorCode) -> str:
        """Why keys failed with this code last, and the remedy.

        Names the columns of the key if one of its values is at fault.
        """
        reason = self.record.errors.reason(code)
        if code not in _OF_KEY_VALUES or self._runner is None:
            return reason
        columns = (f"{field.name} {column_type(field)}" for field in self._runner.schema.key)
        return f"{reason}; the key is ({', '.join(columns)})"

    def cold_reason(self) -> str | None:
        """Why this dimension does not count as started; None if it does."""
        return self._refresher.cold_reason()

    def limit_cache(self, share: float) -> None:
        """Limit the cache to a share, 0 to 1, of its configured bytes."""
        self._cache_share = share
        if self._runner is not None:
            self._runner.state.limit_cache(share)

    def statistics(self) -> DimensionStatistics:
        """Levels now and totals since the start; zeros before the schema is known."""
        if self._runner is None:
            return no_statistics(self.settings)
        current = summed_statistics(self._former, self._runner.statistics())
        return replace(current, connection_wait_s=self._connections.waited_s)

    def refresh_statistics(self) -> RefreshStatistics:
        """Its loads, its feed and its staleness now. Reads all cache entries."""
        return self._refresher.statistics()

    def load_statistics(self) -> LoadStatistics | None:
        """Its loads, in full mode; cheap."""
        return self._refresher.load_statistics()

    def _known_runner(self) -> StateRunner:
        self._schema.known()
        assert self._runner is not None  # made in the same step that makes the schema known
        return self._runner

    def _begin(self, schema: DimensionSchema) -> None:
        """Start with this schema, unless it is the present one."""
        assert self._tasks is not None  # one of them calls this
        former, former_lookups = self._runner, self._lookups
        if former is not None and former_lookups is not None and former.schema.is_same(schema):
            former.on_server(schema.server)
            is_back = self._schema.fault is not None
            former.renew(schema, is_back=is_back)
            if is_back:
                self._refresher.begin(former, self._tasks, lookups=former_lookups)
            return
        runner = StateRunner(schema, self._parts)
        runner.state.limit_cache(self._cache_share)
        lookups = WaitingForChanges(runner, new_id=self._ids.__next__)
        self._runner, self._lookups = runner, lookups
        if former is not None and former_lookups is not None:
            removed = former.end(ErrorCode.SCHEMA_CHANGED)
            former.close()
            former_lookups.end()
            log.warning("dimension.schema_changed", dimension=self.name, forgotten=removed)
            self._former = summed_statistics(self._former, former.state.statistics())
        self._refresher.begin(runner, self._tasks, lookups=lookups)

    def _suspend(self, code: ErrorCode) -> None:
        assert self._runner is not None  # the schema was known
        self._refresher.end()  # changes may not be reported: no row is loaded meanwhile
        removed = self._runner.end(code)
        log.warning("dimension.suspended", dimension=self.name, code=code, forgotten=removed)


@contextmanager
def _capacity_of_arrow() -> Iterator[None]:
    """Refuse cached rows that exceed the capacity of one Arrow answer: no defect."""
    try:
        yield
    except pa.ArrowInvalid as error:
        detail = "the rows are too large for one answer; look up fewer keys"
        raise InvalidRequest(ErrorCode.ANSWER_TOO_LARGE, detail) from error
