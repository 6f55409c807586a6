"""The table changes, disappears or may not be read while its dimension is in use; no restart."""

import asyncio
from collections import deque
from dataclasses import replace

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.answer import Outcome
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import BatchSettings
from lookup_core.statistics import InvalidationOrigin
from service.engine.backend_call import BackendCalls
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from service.engine.schema_watch import SchemaOwner, SchemaWatch
from service.engine.shared_connections import unlimited
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import (
    ONE_BY_ONE,
    PATIENCE_S,
    ROWS,
    SCHEMA,
    Caller,
    DiaryObserver,
    customers,
    in_words,
    is_fit,
    lookup,
    running,
    settings,
    start,
    typed,
    until,
)

ADA = {0: "fetched Ada"}
CHANGED = BackendError(ErrorCode.SCHEMA_CHANGED, "customers: not what it was")
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
SLOW = BackendError(ErrorCode.TIMEOUT, "customers: slow")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")
GONE = BackendError(ErrorCode.TABLE_UNAVAILABLE, "customers: no such table")
WIDE = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8(), "tier": pa.int64()}))
BARE = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))
SCHEMA_CHANGED = {0: "error schema_changed"}


def change(backend: FakeBackend, schema: DimensionSchema) -> None:
    """The same customers, with the columns of this schema."""
    rows = ROWS.select([*schema.key.names, *schema.columns.names])
    backend.replace(rows.cast(pa.schema([*schema.key, *schema.columns])), schema)


class DescribedInTurn(FakeBackend):
    """Raises these failures before it describes itself."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__(ROWS, SCHEMA)
        self.failures = deque(failures)

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Fail, or describe the table."""
        if self.failures:
            raise self.failures.popleft()
        return await super().describe(timeout_s=timeout_s)


# Changed columns


async def test_next_lookup_has_the_new_columns() -> None:
    """The lookup that meets a change fails; the next one has the new types, however often."""
    backend = customers()
    async with running(backend) as dimension:
        for unseen, schema in enumerate((WIDE, BARE, WIDE), 100):
            change(backend, schema)
            assert await lookup(dimension, unseen) == SCHEMA_CHANGED
            (answer,) = await dimension.lookup(typed(7), columns=None, timeout_s=None)

            assert dimension.schema.known() == schema
            assert answer.rows is not None
            assert answer.rows.schema == schema.columns
            assert in_words([answer]) == ADA


async def test_change_ends_all_waiting_lookups() -> None:
    """Lookups that are queued or at the backend are not answered from the new table."""
    backend = customers()
    backend.hold()
    async with running(backend, ONE_BY_ONE) as dimension:
        callers = [start(dimension, key) for key in (7, 8, 9)]
        await backend.wait_for_fetches(1)
        change(backend, WIDE)
        backend.release()

        assert await asyncio.gather(*callers) == [SCHEMA_CHANGED] * 3
        assert not dimension.is_waited_for
        assert await lookup(dimension, 7, 9) == {0: "fetched Ada", 1: "missing"}


async def test_totals_outlast_a_change() -> None:
    """Counters never decrease; dropped rows count as invalidated and are not held any more."""
    backend = customers()
    async with running(backend) as dimension:
        await lookup(dimension, 7, 8, 9)
        change(backend, WIDE)
        await lookup(dimension, 100)
        await lookup(dimension, 7)
        statistics = dimension.statistics()

    counts = {outcome: count for outcome, count in statistics.outcomes.items() if count}
    assert counts == {Outcome.FETCHED: 3, Outcome.MISSING: 1, Outcome.ERROR: 1}
    assert statistics.invalidations[InvalidationOrigin.SCHEMA] == 3
    assert statistics.cache.rows == 1


async def test_cache_limit_outlasts_a_change() -> None:
    """A cache that was limited stays limited at the start and after a schema change."""
    backend = customers()
    async with running(backend, described_s=0) as dimension:
        dimension.limit_cache(0.0)
        await dimension.schema.wait(PATIENCE_S)
        before = [await lookup(dimension, 7) for _ in range(2)]
        change(backend, WIDE)
        after = [await lookup(dimension, 7) for _ in range(3)]
        dimension.limit_cache(1.0)
        unlimited = [await lookup(dimension, 7) for _ in range(2)]

    assert (before, after) == ([ADA] * 2, [SCHEMA_CHANGED, ADA, ADA])
    assert unlimited == [ADA, {0: "hit Ada"}]


# Tables that cannot be looked up


async def suspend(
    dimension: Dimension, backend: FakeBackend, fault: BackendError
) -> dict[int, str]:
    """Let a query and then the description fail with this; the answers of the query."""
    backend.describe_error = fault
    backend.fail_next(1, fault)
    return await lookup(dimension, 9)


@pytest.mark.parametrize("fault", [FORBIDDEN, GONE])
@pytest.mark.parametrize("schema", [SCHEMA, WIDE])
async def test_unfit_table_suspends_its_dimension(
    fault: BackendError, schema: DimensionSchema
) -> None:
    """Waiting lookups get the fault as their outcome, later ones raise it."""
    backend = customers()
    async with running(backend) as dimension:
        await lookup(dimension, 7)

        assert await suspend(dimension, backend, fault) == {0: f"error {fault.code}"}
        for refused in (lookup(dimension, 7), dimension.schema.wait(PATIENCE_S)):
            with pytest.raises(BackendError) as caught:
                await refused
            named = f'dimension "customers": {fault.detail}'
            assert (caught.value.code, caught.value.detail) == (fault.code, named)
        change(backend, schema)
        backend.describe_error = None
        await until(lambda: is_fit(dimension))

        assert dimension.schema.known() == schema
        assert await lookup(dimension, 7) == ADA
        assert dimension.statistics().invalidations[InvalidationOrigin.SCHEMA] == 1


async def test_default_row_that_no_longer_fits_suspends() -> None:
    """A default row with a column that the table lost makes the table unfit."""
    backend = customers()
    async with running(backend, replace(settings(), default={"tier": 0})) as dimension:
        change(backend, BARE)

        assert await lookup(dimension, 7) == {0: "error table_unavailable"}
        with pytest.raises(BackendError, match="default: no column tier"):
            dimension.schema.known()


async def test_callers_may_leave_a_suspended_dimension() -> None:
    """Leaving and late callers are harmless while the table is unfit, or before it is known."""
    backend = customers()
    async with running(backend) as dimension:
        submitted = Caller(dimension).submit(7)
        await suspend(dimension, backend, FORBIDDEN)
        for each in (dimension, Dimension(settings(), customers())):
            each.leave(submitted.lookup_id)
            each.count_timed_out(3)
            assert (each.is_waited_for, each.backend.uses_index) == (False, True)

        assert dimension.statistics().outcomes[Outcome.TIMEOUT] == 3


# Refused queries


@pytest.mark.parametrize(
    ("refusals", "answers", "descriptions"),
    [
        ([CHANGED], [ADA], 2),
        ([FORBIDDEN], [ADA], 2),
        ([CHANGED, CHANGED], [SCHEMA_CHANGED, ADA], 2),
    ],
)
async def test_refused_query_is_sent_once_more(
    refusals: list[BackendError], answers: list[dict[int, str]], descriptions: int
) -> None:
    """A query that an unchanged table refuses is sent again once, which counts as no retry."""
    backend, observer = customers(), DiaryObserver()
    for each in refusals:
        backend.fail_next(1, each)
    async with running(backend, observer=observer) as dimension:
        assert [await lookup(dimension, 7) for _ in answers] == answers
        assert dimension.statistics().retries == 0

    assert backend.descriptions_total == descriptions
    assert [each.result for each in observer.queries] == [
        *[QueryStatus.ERROR] * len(refusals),
        QueryStatus.OK,
    ]


async def test_refusal_without_description_is_final() -> None:
    """Without a description refused queries fail at once; cached rows are served."""
    backend = customers()
    async with running(backend) as dimension:
        await lookup(dimension, 8)
        backend.describe_error = DOWN
        backend.fail_next(2, CHANGED)
        refused = [await lookup(dimension, 7) for _ in range(2)]
        described = backend.descriptions_total

        assert await lookup(dimension, 8) == {0: "hit Bert"}
    assert (refused, described) == ([SCHEMA_CHANGED] * 2, 2)


async def test_refused_queries_share_a_description() -> None:
    """Queries that are refused within a second of an unchanged description share it."""
    backend = customers()
    chosen = settings(batch=BatchSettings(max_keys=1, max_in_flight=8))
    async with running(backend, chosen) as dimension:
        backend.fail_next(8, CHANGED)
        answers = await lookup(dimension, *range(100, 108))
        backend.fail_next(1, CHANGED)

        assert await lookup(dimension, 7) == ADA
    assert set(answers.values()) == {"missing"}
    assert backend.descriptions_total == 2


async def test_change_after_a_shared_description_is_found() -> None:
    """A change within a second of an unchanged description is read when the second is over."""
    backend = customers()
    async with running(backend) as dimension:
        backend.fail_next(1, CHANGED)
        await lookup(dimension, 7)
        change(backend, BARE)
        assert await lookup(dimension, 8) == SCHEMA_CHANGED
        await until(lambda: dimension.schema.known() == BARE)

        assert await lookup(dimension, 8) == {0: "fetched Bert"}
    assert backend.descriptions_total == 3


# Descriptions


async def test_description_is_retried_until_it_succeeds() -> None:
    """Failures and defects are retried; each reason is one log line, and the last one is raised."""
    backend = DescribedInTurn(DOWN, SLOW, DOWN, ZeroDivisionError(), DOWN, SLOW)
    faults: set[str] = set()
    with capture_logs() as logs:
        async with running(backend, described_s=0) as dimension:
            while backend.failures:
                with pytest.raises(BackendError) as caught:
                    await dimension.schema.wait(0.05)
                faults.add(caught.value.code)
            await dimension.schema.wait(PATIENCE_S)

    assert faults >= {DOWN.code, SLOW.code, ErrorCode.INTERNAL}
    lines = [
        (line["event"], line.get("code")) for line in logs if line["event"] != "backend.defect"
    ]
    assert lines == [
        ("dimension.unavailable", ErrorCode.BACKEND_UNAVAILABLE),
        ("dimension.unavailable", ErrorCode.TIMEOUT),
        ("dimension.unavailable", ErrorCode.INTERNAL),
        ("dimension.described", None),
    ]


def test_undescribed_table_is_retryable() -> None:
    """Before the first description a lookup may be retried; raising the fault adds no frames."""
    dimension, depths = Dimension(settings(), customers()), []
    for _ in range(3):
        with pytest.raises(BackendError) as caught:
            dimension.schema.known()
        depths.append(len(caught.traceback))

    assert (caught.value.code, caught.value.is_retryable) == (ErrorCode.BACKEND_UNAVAILABLE, True)
    assert depths == [depths[0]] * 3


@pytest.mark.parametrize(("uses_index", "period_s"), [(False, 30.0), (True, 60.0), (None, 60.0)])
async def test_missing_index_is_checked_sooner(*, uses_index: bool | None, period_s: float) -> None:
    """The table is described each minute, and twice as often while lookups have no index."""
    backend, loop = customers(), asyncio.get_running_loop()
    backend.uses_index = uses_index
    watch = SchemaWatch("customers", BackendCalls(backend, unlimited("customers")))
    described: list[DimensionSchema] = []
    begun_s = loop.time()
    task = asyncio.ensure_future(watch.run(SchemaOwner(described.append, pytest.fail)))

    await watch.wait(PATIENCE_S)
    change(backend, BARE)
    await backend.wait_for_descriptions(2)
    await asyncio.sleep(0)  # the schema is taken in
    task.cancel()

    assert loop.time() - begun_s == period_s
    assert (described, watch.known()) == ([SCHEMA, BARE], BARE)


AWAY = [ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.TIMEOUT]
UNFIT = [ErrorCode.BACKEND_AUTH, ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN]


def watch() -> SchemaWatch:
    """A watch that does not run."""
    calls = BackendCalls(customers(), unlimited("customers"))
    return SchemaWatch("customers", calls)


def pauses(watch: SchemaWatch, code: ErrorCode, count: int) -> list[float]:
    """The longest pauses after this many failures."""
    return [round(watch.delay_s(code, jitter=1.0), 3) for _ in range(count)]


@pytest.mark.parametrize("code", AWAY + UNFIT)
def test_pauses_between_descriptions_double(code: ErrorCode) -> None:
    """From 0.1 s to 2 s while the backend is away, to 30 s while its table is unfit."""
    slow = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]

    found = pauses(watch(), code, 11)

    assert found == ([0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 6 if code in AWAY else slow)


def test_success_or_other_fault_restarts_pauses() -> None:
    """After another kind of failure pauses restart; jitter spreads the upper half."""
    started = watch()
    pauses(started, ErrorCode.TIMEOUT, 5)

    assert pauses(started, ErrorCode.FORBIDDEN, 3) == [0.1, 0.2, 0.4]
    assert pauses(started, ErrorCode.TIMEOUT, 1) == [0.1]
    assert watch().delay_s(ErrorCode.TIMEOUT, jitter=0.0) == pytest.approx(0.05)


async def test_other_version_empties_the_cache() -> None:
    """A description with the same columns and another version of the table removes all rows."""
    first, second = (
        replace(SCHEMA, origin=TableOrigin("public", "customers", version=version))
        for version in ("first", "second")
    )
    backend = customers()
    change(backend, first)
    async with running(backend) as dimension:
        before = [await lookup(dimension, 7), await lookup(dimension, 7)]
        change(backend, second)
        assert await dimension.schema.describe_again()
        after = await lookup(dimension, 7)

    assert (before, after) == ([ADA, {0: "hit Ada"}], ADA)
