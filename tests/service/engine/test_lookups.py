"""Lookups of a dimension: answers, shared queries, deadlines, callers that leave, and traces."""

import asyncio
import gc
import math
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension.dimension_events import Delivery, FetchedRows, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, Overloaded
from lookup_core.settings import BatchSettings, CacheSettings, DimensionSettings, RetrySettings
from lookup_core.statistics import InvalidationOrigin
from service.engine.dimension import Dimension
from service.engine.gathering import AnswerGathering
from service.engine.observer import QueryStatus
from service.engine.tracer import TracedQuery
from tests.hand_clock import HandClock
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.fake_tracer import FakeCallerSpan, FakeTracer
from tests.service.engine.running import (
    ONE_BY_ONE,
    PATIENCE_S,
    ROWS,
    SCHEMA,
    Caller,
    DiaryObserver,
    QueryEnded,
    customers,
    in_words,
    lookup,
    queried,
    running,
    settings,
    start,
    typed,
    until,
)

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
TOO_MUCH = Overloaded(ErrorCode.OVERLOADED, "too much", retry_after_s=1.0)


# Answers


async def test_second_lookup_is_served_from_cache() -> None:
    """Rows and missing keys are fetched once; ambiguous keys are errors, NULL keys are missing."""
    backend = customers()
    async with running(backend) as dimension:
        first = await lookup(dimension, 7, 9, None, 6, 7)
        second = await lookup(dimension, 7, 9)

    assert first == {
        0: "fetched Ada",
        1: "missing",
        2: "missing",
        3: "error ambiguous",
        4: "fetched Ada",
    }
    assert second == {0: "hit Ada", 1: "missing"}
    assert queried(backend) == [[7, 9, 6]]


async def test_cached_row_is_found_by_value() -> None:
    """`hit` finds a cached row without a lookup, and counts as one."""
    observer = DiaryObserver()
    async with running(customers(), observer=observer) as dimension:
        assert dimension.hit(7) is None
        await lookup(dimension, 7)

        hit = dimension.hit(7)
        assert hit is not None
        again = dimension.hit(7)
        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)

    assert [column[hit.row.at].as_py() for column in hit.row.columns] == ["Ada", 1]
    assert again is not None
    assert again.age_s >= hit.age_s
    assert dimension.hit(7) is None
    assert (observer.lookups, dimension.statistics().outcomes[Outcome.HIT]) == (3, 2)


# Large lookups are submitted in parts


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (500, [(0, 16), (16, 32), (48, 64), (112, 128), (240, 256), (496, 4)]),
        (0, [(0, 0)]),
    ],
)
async def test_parts_double_without_known_rows(keys: int, parts: list[tuple[int, int]]) -> None:
    """Without known rows each part has twice the keys of the one before; there is always one."""
    gathering = AnswerGathering(typed(*range(keys)), lambda _: None)

    assert [(start, part.size) for start, part in gathering.parts()] == parts


@pytest.mark.parametrize(
    ("name_bytes", "keys", "parts"),
    [
        (100_000, 200, [(0, 41), (41, 41), (82, 41), (123, 41), (164, 36)]),
        (3, 150, [(0, 128), (128, 22)]),
    ],
    ids=["large rows", "small rows"],
)
async def test_known_rows_size_the_parts(
    name_bytes: int, keys: int, parts: list[tuple[int, int]]
) -> None:
    """A part of cached rows has at most 4 MiB; the first part has at most 128 keys."""
    schema = DimensionSchema(SCHEMA.key, SCHEMA.select(["name"]))
    rows = pa.table({"id": pa.array([7], pa.int64()), "name": ["x" * name_bytes]})
    taken: list[tuple[int, int]] = []  # (first position, keys)
    async with running(FakeBackend(rows, schema)) as dimension:
        await lookup(dimension, 7)
        await dimension.lookup(
            typed(*[7] * keys),
            columns=None,
            timeout_s=None,
            take=lambda answer: taken.append((int(answer.positions[0]), answer.size)),
        )

    assert taken == parts


def refuse(_answer: Answer) -> None:
    """Take no answer."""
    raise TOO_MUCH


async def test_refused_fetch_leaves_all_parts() -> None:
    """An error of `take` for a fetched answer ends the lookup and leaves its other keys."""
    backend = customers()
    backend.hold()
    async with running(backend) as dimension:
        refused = asyncio.ensure_future(
            dimension.lookup(typed(*range(100)), columns=None, timeout_s=None, take=refuse)
        )
        await backend.wait_for_fetches(1)
        backend.release()
        with pytest.raises(Overloaded) as caught:
            await refused

        assert (caught.value, dimension.is_waited_for) == (TOO_MUCH, False)


async def test_refused_lookup_frees_its_answers() -> None:
    """Answers before an error of `take` are freed at once, without a garbage collection."""
    taken: list[weakref.ref[pa.RecordBatch]] = []

    def take(answer: Answer) -> None:
        if taken:
            raise TOO_MUCH
        taken.append(weakref.ref(answer.rows))

    backend = customers()
    backend.hold()
    gc.disable()
    try:
        async with running(backend, settings(batch=BatchSettings(max_keys=8))) as dimension:
            refused = asyncio.ensure_future(
                dimension.lookup(typed(*range(16)), columns=None, timeout_s=None, take=take)
            )
            await backend.wait_for_fetches(1)
            backend.release()
            with pytest.raises(Overloaded):
                await refused
            del refused
            dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
            assert [row() for row in taken] == [None]
    finally:
        gc.enable()


async def test_refused_hit_stops_the_lookup() -> None:
    """An error of `take` for a cached answer ends the lookup before the next part."""
    backend = customers()
    async with running(backend) as dimension:
        await lookup(dimension, 7)
        with pytest.raises(Overloaded):
            await dimension.lookup(typed(*[7] * 64, 8), columns=None, timeout_s=None, take=refuse)

        assert (queried(backend), dimension.is_waited_for) == ([[7]], False)


async def test_deliveries_after_refusal_are_ignored() -> None:
    """Answers that arrive after a refusal, and before the lookup is left, are dropped."""
    gathering = AnswerGathering(typed(7, 8), refuse)
    answer = rowless_answer(np.array([0], np.int32), Outcome.MISSING)

    for is_last in (False, True):
        gathering.delivery(0)(Delivery(LookupId(1), answer, is_last))

    with pytest.raises(Overloaded):
        await gathering.end()
    assert gathering.answers == []


# Refusals


async def test_permanent_fault_refuses_at_once() -> None:
    """A permanent fault of the table ends the wait for the description."""
    backend = customers()
    backend.describe_error = BackendError(
        ErrorCode.TABLE_UNAVAILABLE, "no column nope", is_permanent=True
    )
    async with asyncio.timeout(PATIENCE_S), running(backend, described_s=0) as dimension:
        with pytest.raises(BackendError, match="no column nope"):
            await dimension.schema.wait(math.inf)


# Deadlines


@pytest.mark.parametrize("timeout_s", [0.1, None])
async def test_lookup_ends_at_its_deadline(timeout_s: float | None) -> None:
    """At its timeout, by default that of the settings, a lookup ends and cancels its query."""
    backend, observer, tracer, clock = customers(), DiaryObserver(), FakeTracer(), HandClock()
    backend.hold()
    chosen = replace(settings(), timeout_s=2.0)
    async with running(backend, chosen, observer=observer, tracer=tracer, clock=clock) as dimension:
        late = start(dimension, 7, timeout_s=timeout_s)
        await backend.wait_for_fetches(1)
        clock.now_s += timeout_s or 2.0

        assert await late == {0: "timeout timeout"}
        await observer.wait_for_queries(1)

    assert observer.queries == [QueryEnded(1, QueryStatus.CANCELLED)]
    assert (backend.cancelled_total, observer.lookups) == (1, 1)
    assert tracer.queries[0].ended_with == (QueryStatus.CANCELLED, None)


# Callers that leave


async def test_caller_leaves_while_its_row_lands() -> None:
    """A caller that is cancelled in the same loop turn as its row arrives stops nothing."""
    backend = customers()
    backend.hold()
    async with running(backend) as dimension:
        caller = start(dimension, 7)
        await backend.wait_for_fetches(1)
        backend.release()  # the fetch goes on at the next turn of the loop,
        caller.cancel()  # and only then does the caller notice

        await asyncio.wait([caller])
        assert caller.cancelled()
        assert await lookup(dimension, 7) == {0: "hit Ada"}


async def test_query_cancelled_before_its_first_step() -> None:
    """A query whose caller leaves before its task begins frees its slot."""
    backend = customers()
    async with running(backend, ONE_BY_ONE) as dimension:
        caller = Caller(dimension)
        submitted = caller.submit(7)  # wakes the dimension, which makes a task for the query
        caller.submit(8)  # waits for the only slot
        loop = asyncio.get_running_loop()
        loop.call_soon(dimension.leave, submitted.lookup_id)  # before the task's first step

        await backend.wait_for_fetches(1)
    assert queried(backend) == [[8]]


async def test_end_cancels_all_queries() -> None:
    """When a dimension stops, no query stays at the backend."""
    backend = customers()
    backend.hold()
    async with running(backend, settings(batch=BatchSettings(max_keys=1))) as dimension:
        Caller(dimension).submit(7, 8)
        await backend.wait_for_fetches(2)

    assert backend.cancelled_total == 2


# Failed queries


@pytest.mark.parametrize(
    ("error", "outcome", "result"),
    [
        (DOWN, "error backend_unavailable", QueryStatus.ERROR),
        (BackendError(ErrorCode.TIMEOUT, "slow"), "timeout timeout", QueryStatus.TIMEOUT),
    ],
)
async def test_lasting_failure_is_an_outcome(
    error: BackendError, outcome: str, result: QueryStatus
) -> None:
    """A query that fails for good gives its keys the error, which is never cached as missing."""
    backend, observer = customers(), DiaryObserver()
    backend.fail_next(1, error)
    async with running(backend, observer=observer) as dimension:
        assert await lookup(dimension, 7) == {0: outcome}
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        await observer.wait_for_queries(2)
        (recent,) = dimension.record.errors.latest()

    assert observer.queries == [QueryEnded(1, result), QueryEnded(1, QueryStatus.OK)]
    assert (dimension.record.queries, dimension.record.batch_keys) == (2, 2)
    assert (recent.code, recent.detail, recent.queries) == (error.code, error.detail, 1)


class FaultyBackend(FakeBackend):
    """Passes its first answers through faults, one each."""

    def __init__(self, *faults: Callable[[FetchedRows], FetchedRows]) -> None:
        super().__init__(ROWS, SCHEMA)
        self._faults = deque(faults)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows, changed by the next fault."""
        fetched = await super().fetch(keys, timeout_s=timeout_s)
        return self._faults.popleft()(fetched) if self._faults else fetched


def raising(error: BaseException) -> Callable[[FetchedRows], FetchedRows]:
    """A fetch that raises this."""

    def fail(_: FetchedRows) -> FetchedRows:
        raise error

    return fail


def ordinals(*positions: float) -> Callable[[FetchedRows], FetchedRows]:
    """Rows that claim to belong to these keys."""
    return lambda fetched: replace(fetched, ordinals=np.array(positions, type(positions[0])))


FRACTIONS = ordinals(0.0, 1.0)


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([raising(ZeroDivisionError())], "internal"),
        ([raising(asyncio.CancelledError())], "internal"),
        ([ordinals(0, 2)], "internal"),
        ([ordinals(-1, 0)], "internal"),
        ([ordinals(0)], "internal"),
        ([FRACTIONS], "internal"),
        ([lambda fetched: replace(fetched, rows=None)], "internal"),
        (
            [lambda fetched: replace(fetched, rows=fetched.rows.select(["name"]))] * 2,
            "schema_changed",
        ),
        (
            [lambda fetched: replace(fetched, rows=fetched.rows.rename_columns(["name", "x"]))] * 2,
            "schema_changed",
        ),
    ],
    ids=[
        *("defect", "cancelled", "unknown key", "negative", "count", "fractions", "no rows"),
        *("column gone", "column renamed"),
    ],
)
async def test_faulty_answer_fails_its_query_only(
    faults: list[Callable[[FetchedRows], FetchedRows]], code: str
) -> None:
    """An answer that is not rows of the queried keys fails its query; the next one succeeds."""
    backend = FaultyBackend(*faults)
    with capture_logs() as logs:
        async with running(backend) as dimension:
            assert await lookup(dimension, 7, 8) == {0: f"error {code}", 1: f"error {code}"}
            assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "fetched Bert"}

    events = [line["event"] for line in logs]
    assert events.count("query.undeliverable") == (faults == [FRACTIONS])


# Traces


RETRIED = settings(retry=RetrySettings(max_retries=1, initial_s=0.001))


def begun(tracer: FakeTracer) -> FakeCallerSpan:
    """The span of a traced caller."""
    span = tracer.begin_lookup("customers", keys=1, parent=None)
    assert span is not None
    return span


async def traced_lookup(
    dimension: Dimension, span: FakeCallerSpan | None, *keys: int
) -> dict[int, str]:
    """All answers for a caller, traced or not."""
    answers = await dimension.lookup(typed(*keys), columns=None, timeout_s=None, span=span)
    return in_words(answers)


async def test_query_is_linked_to_all_its_callers() -> None:
    """A query is linked to traced callers of its batch, and to those that join it, once each."""
    backend, tracer = customers(), FakeTracer()
    first, second, third = (begun(tracer) for _ in range(3))
    backend.hold()
    async with running(backend, tracer=tracer) as dimension:
        callers = [
            asyncio.ensure_future(traced_lookup(dimension, span, key))
            for span, key in ((first, 7), (second, 8), (None, 8))
        ]
        await backend.wait_for_fetches(1)
        callers.append(asyncio.ensure_future(traced_lookup(dimension, third, 7, 8)))
        await asyncio.sleep(0)  # it joins
        backend.release()
        await asyncio.gather(*callers)

    (query,) = tracer.queries
    assert (query.what, query.callers) == (TracedQuery("customers", 2), [first, second, third])
    assert query.ended_with == (QueryStatus.OK, None)


async def test_query_of_untraced_callers_has_no_links() -> None:
    """A query without traced callers is a span without links; parts of one caller are one link."""
    tracer = FakeTracer()
    async with running(customers(), tracer=tracer) as dimension:
        await traced_lookup(dimension, None, 7)
        await traced_lookup(dimension, begun(tracer), *range(100, 200))

    assert {len(query.callers) for query in tracer.queries[:1]} == {0}
    assert {len(query.callers) for query in tracer.queries[1:]} == {1}


async def test_every_attempt_is_a_span() -> None:
    """A retried query is a second span with its number; the first one has the error code."""
    backend, tracer = customers(), FakeTracer()
    backend.fail_next(1, DOWN)
    async with running(backend, RETRIED, tracer=tracer) as dimension:
        await traced_lookup(dimension, begun(tracer), 7)

    assert [(query.what.tries, query.ended_with) for query in tracer.queries] == [
        (1, (QueryStatus.ERROR, ErrorCode.BACKEND_UNAVAILABLE)),
        (2, (QueryStatus.OK, None)),
    ]


async def test_background_refresh_has_no_links() -> None:
    """A stale row is served at once; its background refresh is linked to no caller."""
    clock, tracer = HandClock(100.0), FakeTracer()
    cache = CacheSettings(ttl_s=1.0, stale_while_revalidate_s=60.0, ttl_jitter=0.0)
    chosen = DimensionSettings("customers", cache=cache, timeout_s=PATIENCE_S)
    async with running(customers(), chosen, tracer=tracer, clock=clock) as dimension:
        await traced_lookup(dimension, begun(tracer), 7)
        clock.now_s += 2.0
        assert await traced_lookup(dimension, begun(tracer), 7) == {0: "stale Ada"}
        await until(lambda: len(tracer.queries) == 2)

    assert [len(query.callers) for query in tracer.queries] == [1, 0]
