"""One dimension at work, whatever becomes of its store and of its table meanwhile.

Owns the clock, the timer and the schema's changes; a `StateRunner` carries out the lookups of one
schema. No decision is made here: the core decides.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import structlog

from lookup_core.answer import Answer
from lookup_core.cache.row_cache import Bookmark, Hit
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.explanation import Explanation
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import TypedKeys
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
from service.engine.gathering import FIRST_KEYS, AnswerGathering, Deliver, Submitted, Take
from service.engine.observer import NullObserver, Observer
from service.engine.pause import pause
from service.engine.recent_errors import DimensionRecord
from service.engine.refresher import Refresher, RefreshSources
from service.engine.schema_watch import SchemaWatch
from service.engine.state_runner import RunnerParts, StateRunner
from service.engine.tracer import CallerSpan, NullTracer, Tracer

log = structlog.get_logger()

RECHECK_S = 60.0
HTTP_CHANNEL = ChannelId(0)  # all plain requests take turns as one channel


class Dimension:
    """Answers lookups of one dimension while `run` runs; used by one event loop only.

    When its columns change, lookups under way end with `schema_changed`, and later ones get the new
    columns. While its table is gone or may not be read, it raises BackendError with the reason.
    """

    def __init__(
        self,
        settings: DimensionSettings,
        backend: Backend,
        *,
        sources: RefreshSources | None = None,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.record = DimensionRecord(observer or NullObserver(), clock)
        self._clock = clock
        sources = sources or RefreshSources()
        self._refresher = Refresher(settings, sources, clock=clock)
        self._wake = asyncio.Event()
        self._schema = SchemaWatch(
            settings.name,
            backend,
            on_described=self._begin,
            on_unfit=self._suspend,
            # How changes are told may change, or what is held whole: no query would notice.
            recheck_s=None if sources == RefreshSources() else RECHECK_S,
            clock=clock,
        )
        is_unchanged, wake = self._schema.is_unchanged, self._wake.set
        tracer = tracer or NullTracer()
        self._parts = RunnerParts(settings, backend, self.record, tracer, clock, is_unchanged, wake)
        self._runner: StateRunner | None = None  # since the first description
        self._tasks: asyncio.TaskGroup | None = None  # while `run` runs
        self._former = no_statistics(settings)  # of all runners before this one
        self._cache_share = 1.0
        self._first_keys = FIRST_KEYS

    @property
    def name(self) -> str:
        """The dimension's name in the configuration."""
        return self.settings.name

    @property
    def is_waited_for(self) -> bool:
        """Whether a lookup has not got its last answer yet."""
        asked = self._refresher.waiting
        return asked is not None and asked.is_waited_for

    @property
    def schema(self) -> DimensionSchema:
        """Key and columns; raises BackendError while they are not known, or the table is unfit."""
        return self._schema.known()

    @property
    def uses_index(self) -> bool | None:
        """Whether the store finds keys without reading all rows; None while it has not told."""
        return self._parts.backend.uses_index

    async def run(self) -> None:
        """Learn the schema, then send queries and end what is overdue, until cancelled.

        Cancellation ends all queries; lookups that wait then get no more answers.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._schema.run())
            while True:
                await self._pause(None if self._runner is None else self._runner.step(tasks))

    async def wait_until_described(self, timeout_s: float) -> DimensionSchema:
        """The schema; the first time, as soon as the backend tells it.

        Raises BackendError with the last fault when the time is over, and at once for a table that
        is no longer fit for lookups.
        """
        return await self._schema.wait(timeout_s)

    def submit(  # noqa: PLR0913 -- all there is to one question
        self,
        keys: TypedKeys,
        *,
        columns: Sequence[str] | None,
        channel: ChannelId,
        timeout_s: float,
        deliver: Deliver,
        event_time_ms: int | None = None,
        asked_by: CallerSpan | None = None,
    ) -> Submitted:
        """Ask for keys; what is not answered at once goes to `deliver`, which must not block.

        `event_time_ms`: the largest of the records, where changes up to it are waited for;
        `asked_by`: whom the queries for these keys are linked to, if it is followed.
        Raises BackendError while the schema is not known, InvalidRequest for an unknown column,
        Overloaded when too many keys wait.
        """
        runner, now = self._known_runner(), self._clock()
        names = tuple(runner.schema.select(columns).names)
        lookup_id, deadline_s = self._refresher.new_id(), now + timeout_s
        about = event_time_ms, asked_by
        request = LookupRequest(lookup_id, channel, keys, names, deadline_s, *about)
        asked = self._refresher.waiting
        assert asked is not None  # since there is a runner
        return asked.submit(request, deliver, now=now)

    def leave(self, lookup_id: LookupId) -> None:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        if (asked := self._refresher.waiting) is not None:
            asked.leave(lookup_id)

    def count_timed_out(self, keys: int) -> None:
        """Note that so many keys had to wait too long to be submitted; harmless at any time."""
        if self._runner is not None:
            self._runner.state.count_timed_out(keys)

    async def lookup(
        self,
        keys: TypedKeys,
        *,
        columns: Sequence[str] | None,
        timeout_s: float | None,
        take: Take = lambda _: None,
        asked_by: CallerSpan | None = None,
    ) -> list[Answer]:
        """All answers to the keys, each position exactly once, within `timeout_s`.

        `take` sees each answer as it comes, and ends the lookup by raising a SidelookError. Raises
        as `submit` does. Cancellation leaves the shared flights to the others.
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
                        asked_by=asked_by,
                    )
                gathering.on_submitted(start, submitted)
            await gathering.end()
        finally:
            self._first_keys = gathering.first_keys
            for lookup_id in gathering.lookup_ids:
                self.leave(lookup_id)
        return gathering.answers

    def hit(self, value: object) -> Hit | None:
        """The cached row of the key with this value; None, if `lookup` has to find out.

        What `lookup` needs for many keys takes it ten times as long for one.
        """
        try:
            return self._known_runner().hit(value)
        except BackendError:  # no schema: `lookup` waits for it, or says why there is none
            return None

    def revisit(self, bookmark: Bookmark) -> float | None:
        """The age in seconds of the row of an earlier hit, which is one again; else None.

        Whatever came for its key since is another row.
        """
        return None if self._runner is None else self._runner.revisit(bookmark)

    def explain(self, keys: TypedKeys) -> list[Explanation]:
        """Where the answer to each key would come from; raises BackendError without a schema."""
        return self._known_runner().state.explain(keys, self._clock())

    def invalidate(self, keys: TypedKeys | None, *, origin: InvalidationOrigin) -> int:
        """Forget keys, or all for None; returns how many cached entries went.

        Raises BackendError without a schema; there is nothing to forget then.
        """
        return self._known_runner().state.invalidate(keys, origin)

    def reload(self) -> None:
        """Begin to load the whole table anew, as soon as its changes are followed.

        A load that is under way is followed by another. Raises InvalidRequest for a dimension that
        is not held whole, BackendError without a schema.
        """
        self._known_runner()
        self._refresher.reload()

    def cold_reason(self) -> str | None:
        """What is waited for before this dimension counts as started; None when it does."""
        return self._refresher.cold_reason()

    def limit_cache(self, share: float) -> None:
        """Let the cache hold so much of its bound from now on, 0 to 1; what is too much goes."""
        self._cache_share = share
        if self._runner is not None:
            self._runner.state.limit_cache(share)

    def statistics(self) -> DimensionStatistics:
        """Levels now and totals since the start; zeros before the schema is known."""
        if self._runner is None:
            return no_statistics(self.settings)
        return summed_statistics(self._former, self._runner.state.statistics())

    def refresh_statistics(self) -> RefreshStatistics:
        """How it is loaded and followed; little before the schema is known. Looks at all rows."""
        return self._refresher.statistics()

    def load_statistics(self) -> LoadStatistics | None:
        """How it is loaded, if it is; for who asks often."""
        return self._refresher.load_statistics()

    def _known_runner(self) -> StateRunner:
        self._schema.known()
        assert self._runner is not None  # made in the same step that makes the schema known
        return self._runner

    def _begin(self, schema: DimensionSchema) -> None:
        """Work for this schema from now on, unless it is what it was."""
        former = self._runner
        if former is not None and former.schema.is_same(schema):
            return
        runner = StateRunner(schema, self._parts)
        runner.state.limit_cache(self._cache_share)
        self._runner = runner
        if former is not None:
            self._retire(former)
        assert self._tasks is not None  # it is one of them that has learnt the schema
        self._refresher.begin(runner, self._tasks)

    def _retire(self, former: StateRunner) -> None:
        forgotten = former.end(ErrorCode.SCHEMA_CHANGED)
        log.warning("dimension.schema_changed", dimension=self.name, forgotten=forgotten)
        self._former = summed_statistics(self._former, former.state.statistics())

    def _suspend(self, code: ErrorCode) -> None:
        assert self._runner is not None  # the schema was known
        forgotten = self._runner.end(code)
        log.warning("dimension.suspended", dimension=self.name, code=code, forgotten=forgotten)

    async def _pause(self, until: float | None) -> None:
        await pause(self._wake, None if until is None else until - self._clock())
        self._wake.clear()


@contextmanager
def _capacity_of_arrow() -> Iterator[None]:
    """Cached rows that do not fit into one answer of Arrow's are refused, and no defect."""
    try:
        yield
    except pa.ArrowInvalid as error:
        detail = "the rows are too large for one answer; ask for fewer keys"
        raise InvalidRequest(ErrorCode.ANSWER_TOO_LARGE, detail) from error
