"""The table changes while its dimension is at work: new rows in new types, and no restart."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import BatchSettings
from lookup_core.statistics import InvalidationOrigin
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from tests.service.engine.running import (
    PATIENCE_S,
    ROWS,
    SCHEMA,
    customers,
    is_fit,
    running,
    settings,
    told,
    typed,
)

FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")
GONE = BackendError(ErrorCode.TABLE_UNAVAILABLE, "customers: no such table")
WIDE = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8(), "tier": pa.int64()}))
BARE = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))
ONE_BY_ONE = settings(batch=BatchSettings(max_keys=1, max_in_flight=1))


def change(store: FakeBackend, schema: DimensionSchema = WIDE) -> None:
    """The same customers, with these columns."""
    store.replace(ROWS.cast(pa.schema([ROWS.schema.field("id"), *_fields(schema)])), schema)


def _fields(schema: DimensionSchema) -> list[pa.Field]:
    names = schema.columns.names
    return [
        schema.columns.field(each.name) if each.name in names else each
        for each in list(ROWS.schema)[1:]
    ]


async def lookup(dimension: Dimension, *keys: int) -> dict[int, str]:
    """A caller that waits for all answers."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=None))


async def suspend(dimension: Dimension, store: FakeBackend, fault: BackendError) -> dict[int, str]:
    """Let the store be found unfit by a lookup; its answers."""
    store.describe_error = fault
    store.fail_next(1, fault)
    return await lookup(dimension, 9)


async def wait_until_fit(dimension: Dimension) -> None:
    """Wait until the dimension takes lookups again."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_fit(dimension):  # noqa: ASYNC110  no event tells it
            await asyncio.sleep(0.001)


# Other columns


async def test_rows_come_in_the_new_types() -> None:
    """The lookup that meets the change ends with an error, the next one has the new columns."""
    store = customers()
    async with running(store) as dimension:
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        change(store)

        assert await lookup(dimension, 8) == {0: "error schema_changed"}
        (answer,) = await dimension.lookup(typed(7), columns=["tier"], timeout_s=None)

    assert answer.rows is not None
    assert answer.rows.schema == pa.schema({"tier": pa.int64()})
    assert (answer.outcomes.tolist(), answer.rows.to_pylist()) == ([Outcome.FETCHED], [{"tier": 1}])


async def test_all_who_wait_hear_of_the_change() -> None:
    """Queued or at the store: what was asked of the old table is not answered from the new one."""
    store = customers()
    store.hold()
    async with running(store, ONE_BY_ONE) as dimension:
        callers = [asyncio.ensure_future(lookup(dimension, key)) for key in (7, 8, 9)]
        await store.wait_for_fetches(1)
        change(store)
        store.release()

        assert await asyncio.gather(*callers) == [{0: "error schema_changed"}] * 3
        assert not dimension.is_waited_for
        assert await lookup(dimension, 7, 9) == {0: "fetched Ada", 1: "missing"}


async def test_dropped_column_is_unknown_now() -> None:
    """Who asks for what is gone is told so, as for any column that there is not."""
    store = customers()
    async with running(store) as dimension:
        change(store, BARE)
        await lookup(dimension, 7)

        assert dimension.schema is BARE
        with pytest.raises(InvalidRequest) as caught:
            await dimension.lookup(typed(7), columns=["tier"], timeout_s=None)
    assert caught.value.code is ErrorCode.UNKNOWN_COLUMN


async def test_changed_key_is_asked_for_in_its_new_type() -> None:
    """Keys are of the type that the table has now."""
    store = customers()
    texts = DimensionSchema(pa.schema({"id": pa.utf8()}), SCHEMA.columns)
    rows = ROWS.set_column(0, "id", ROWS["id"].cast(pa.utf8()))
    async with running(store) as dimension:
        store.replace(rows, texts)
        assert await lookup(dimension, 7) == {0: "error schema_changed"}
        keys = TypedKeys(pa.record_batch({"id": ["7"]}), typed().nulls, {})

        assert told(await dimension.lookup(keys, columns=None, timeout_s=None)) == {
            0: "fetched Ada"
        }


async def test_totals_outlast_a_change() -> None:
    """Counters never go back; rows that were flushed are counted, and are not held any more."""
    store = customers()
    async with running(store) as dimension:
        await lookup(dimension, 7, 8, 9)
        change(store)
        await lookup(dimension, 100)
        await lookup(dimension, 7)
        statistics = dimension.statistics()

    counts = {outcome: count for outcome, count in statistics.outcomes.items() if count}
    assert counts == {Outcome.FETCHED: 3, Outcome.MISSING: 1, Outcome.ERROR: 1}
    assert statistics.invalidations[InvalidationOrigin.SCHEMA] == 3
    assert statistics.cache.rows == 1


async def test_second_change_is_found_as_well() -> None:
    """A table may change as often as it likes."""
    store = customers()
    async with running(store) as dimension:
        for unseen, schema in enumerate((WIDE, BARE, WIDE), 100):
            change(store, schema)
            assert await lookup(dimension, unseen) == {0: "error schema_changed"}
            assert dimension.schema is schema
            assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_limit_of_the_cache_outlasts_a_change() -> None:
    """A cache that had to shrink does not grow because the table changed, nor at the start."""
    store = customers()
    dimension = Dimension(settings(), store)
    dimension.limit_cache(0.0)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        before = [await lookup(dimension, 7) for _ in range(2)]
        change(store)
        after = [await lookup(dimension, 7) for _ in range(3)]
        task.cancel()

    assert before == [{0: "fetched Ada"}] * 2
    assert after == [{0: "error schema_changed"}, {0: "fetched Ada"}, {0: "fetched Ada"}]


# Unfit tables


@pytest.mark.parametrize("fault", [FORBIDDEN, GONE])
async def test_unfit_table_suspends_its_dimension(fault: BackendError) -> None:
    """Who waits gets the reason as the outcome, whoever comes then gets it as the error."""
    store = customers()
    async with running(store) as dimension:
        await lookup(dimension, 7)

        assert await suspend(dimension, store, fault) == {0: f"error {fault.code}"}

        for ask in (lookup(dimension, 7), dimension.wait_until_described(PATIENCE_S)):
            with pytest.raises(BackendError) as caught:
                await ask
            assert caught.value is fault


async def test_suspended_dimension_goes_on_by_itself() -> None:
    """When the table is fit again it is looked up anew: another one may have taken its name."""
    store = customers()
    async with running(store) as dimension:
        await lookup(dimension, 7)
        await suspend(dimension, store, GONE)
        store.describe_error = None
        await wait_until_fit(dimension)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        assert dimension.statistics().invalidations[InvalidationOrigin.SCHEMA] == 1


async def test_table_may_come_back_changed() -> None:
    """A table that was away and has other columns then is as good as one that changed."""
    store = customers()
    async with running(store) as dimension:
        await suspend(dimension, store, GONE)
        change(store)
        store.describe_error = None
        await wait_until_fit(dimension)

        assert dimension.schema is WIDE
        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_default_row_that_fits_no_more_suspends() -> None:
    """A row for missing keys of other columns is never given out: the table counts as unfit."""
    store = customers()
    chosen = replace(settings(), default={"tier": 0})
    async with running(store, chosen) as dimension:
        change(store, BARE)

        assert await lookup(dimension, 7) == {0: "error table_unavailable"}
        with pytest.raises(BackendError, match="default: no column tier"):
            dimension.schema  # noqa: B018  asked for the error alone


async def test_suspended_dimension_bears_all_else() -> None:
    """Callers who leave or were late are no trouble while the table is unfit."""
    store = customers()
    async with running(store) as dimension:
        submitted = dimension.submit(
            typed(7),
            columns=None,
            channel=1,  # type: ignore[arg-type]  # any number will do
            timeout_s=PATIENCE_S,
            deliver=lambda *_: None,
        )
        await suspend(dimension, store, FORBIDDEN)

        dimension.leave(submitted.lookup_id)
        dimension.count_timed_out(3)
        dimension.limit_cache(0.5)

        assert dimension.statistics().outcomes[Outcome.TIMEOUT] == 3
        assert not dimension.is_waited_for


async def test_dimension_without_a_schema_bears_all() -> None:
    """The same before the store has described itself for the first time."""
    dimension = Dimension(settings(), customers())

    dimension.leave(1)  # type: ignore[arg-type]  # any number will do
    dimension.count_timed_out(3)

    assert not dimension.is_waited_for
    assert dimension.uses_index
