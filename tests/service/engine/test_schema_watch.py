"""A dimension's schema: known once its store tells it, and doubted when a query is refused."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from service.engine.schema_watch import SchemaWatch
from tests.service.engine.refreshing import until
from tests.service.engine.running import PATIENCE_S, ROWS, SCHEMA, customers

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
SLOW = BackendError(ErrorCode.TIMEOUT, "customers: slow")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: no right to read")
NAMES = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))


class FailingFirst(FakeBackend):
    """Describes itself after these failures."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__(ROWS, SCHEMA)
        self.failures = deque(failures)

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Fail, or tell the schema."""
        if self.failures:
            raise self.failures.popleft()
        return await super().describe(timeout_s=timeout_s)


@dataclass(slots=True)
class User:
    """Notes what it is told of a store's table; cannot use a schema without this column."""

    store: FakeBackend
    needed: str = "name"
    recheck_s: float | None = None
    told: list[DimensionSchema | ErrorCode] = field(default_factory=list)

    def on_described(self, schema: DimensionSchema) -> None:
        """Note it, or refuse it."""
        if self.needed not in schema.columns.names:
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, "default: no such column")
        self.told.append(schema)

    def watch(self) -> SchemaWatch:
        """A watch that tells this user."""
        return SchemaWatch(
            "customers",
            self.store,
            on_described=self.on_described,
            on_unfit=self.told.append,
            recheck_s=self.recheck_s,
        )


@asynccontextmanager
async def watching(user: User) -> AsyncIterator[SchemaWatch]:
    """A watch at work, until the block ends."""
    watch = user.watch()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
        task = tasks.create_task(watch.run())
        yield watch
        task.cancel()


@asynccontextmanager
async def known(user: User) -> AsyncIterator[SchemaWatch]:
    """The same, where the schema is known already."""
    async with watching(user) as watch:
        await watch.wait(PATIENCE_S)
        yield watch


# The first description


async def test_schema_is_learned() -> None:
    """A store that is up tells the schema at the first question."""
    user = User(customers())
    async with watching(user) as watch:
        assert await watch.wait(PATIENCE_S) is SCHEMA
        assert watch.known() is SCHEMA

    assert (user.told, user.store.descriptions_total) == ([SCHEMA], 1)


async def test_unasked_store_is_unavailable() -> None:
    """Before the store was asked, a lookup may be tried again later."""
    with pytest.raises(BackendError) as caught:
        await User(customers()).watch().wait(0.0)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.is_retryable


async def test_store_is_asked_until_it_answers() -> None:
    """Failures are outlasted, defects of the adapter included."""
    store = FailingFirst(DOWN, ZeroDivisionError())
    async with watching(User(store)) as watch:
        assert await watch.wait(PATIENCE_S) is SCHEMA

    assert not store.failures


async def test_last_fault_is_told() -> None:
    """While the schema is unknown, the fault that was seen last says why."""
    user = User(customers())
    user.store.describe_error = DOWN
    async with watching(user) as watch:
        await user.store.wait_for_descriptions(1)
        user.store.describe_error = FORBIDDEN
        await user.store.wait_for_descriptions(2)

        with pytest.raises(BackendError) as caught:
            await watch.wait(0.001)

    assert caught.value is FORBIDDEN
    assert user.told == []


async def test_fault_told_often_stays_small() -> None:
    """Whoever is refused in an outage leaves nothing behind in the error."""
    watch = User(customers()).watch()
    depths = []
    for _ in range(3):
        with pytest.raises(BackendError) as caught:
            watch.known()
        depths.append(len(caught.traceback))

    assert depths == [depths[0]] * 3


async def test_unusable_schema_is_a_fault() -> None:
    """A table without what the configuration names is unfit until it has it."""
    user = User(customers(), needed="rank")
    async with watching(user) as watch:
        await user.store.wait_for_descriptions(1)
        with pytest.raises(BackendError, match="default: no such column"):
            await watch.wait(0.001)
        user.needed = "name"

        assert await watch.wait(PATIENCE_S) is SCHEMA


async def test_lasting_fault_is_one_line() -> None:
    """A store that is away for long does not flood the log; another reason is told."""
    user = User(FailingFirst(DOWN, SLOW, DOWN, SLOW))
    with capture_logs() as logs:
        async with known(user):
            pass

    assert [(line["event"], line.get("code")) for line in logs] == [
        ("dimension.unavailable", ErrorCode.BACKEND_UNAVAILABLE),
        ("dimension.unavailable", ErrorCode.TIMEOUT),
        ("dimension.described", None),
    ]


# Doubts


async def test_benign_doubt_finds_no_change() -> None:
    """A table that is what it was: the query may be tried again, and nothing else happens."""
    user = User(customers())
    async with known(user) as watch:
        assert await watch.is_unchanged()
        assert watch.known() is SCHEMA

    assert (user.told, user.store.descriptions_total) == ([SCHEMA, SCHEMA], 2)


async def test_doubts_share_a_description() -> None:
    """Many queries that are refused at once cost the store one question; a second has one."""
    user = User(customers())
    async with known(user) as watch:
        assert all(await asyncio.gather(*[watch.is_unchanged() for _ in range(50)]))
        assert await watch.is_unchanged()

    assert user.store.descriptions_total == 2


async def test_doubt_in_the_rest_is_followed_up() -> None:
    """A change within a second of a description that found none is found after it."""
    user = User(customers())
    async with known(user) as watch:
        await watch.is_unchanged()
        user.store.replace(ROWS, NAMES)
        assert await watch.is_unchanged()
        await user.store.wait_for_descriptions(3)
        await asyncio.sleep(0)  # its turn to take the schema in

        assert watch.known() is NAMES


async def test_changed_schema_is_known_at_once() -> None:
    """Who doubted is told of the change when the new schema is known."""
    user = User(customers())
    async with known(user) as watch:
        user.store.replace(ROWS, NAMES)

        assert not await watch.is_unchanged()
        assert watch.known() is await watch.wait(0.0) is NAMES

    assert user.told == [SCHEMA, NAMES]


async def test_cancelled_doubt_harms_nobody() -> None:
    """A query that is ended while it waits for the description leaves it to the others."""
    async with known(User(customers())) as watch:
        gone, stays = (asyncio.ensure_future(watch.is_unchanged()) for _ in range(2))
        await asyncio.sleep(0)  # their turn to ask
        gone.cancel()

        assert await stays
        assert gone.cancelled()


# Unfit tables


async def test_unfit_table_is_known_no_more() -> None:
    """Its fault is told at once, also to those who would wait; then it is asked for again."""
    user = User(customers())
    async with known(user) as watch:
        user.store.describe_error = FORBIDDEN
        assert not await watch.is_unchanged()
        with pytest.raises(BackendError) as caught:
            await watch.wait(PATIENCE_S)
        user.store.describe_error = None
        await user.store.wait_for_descriptions(3)
        await asyncio.sleep(0)  # its turn to take the schema in

        assert watch.known() is SCHEMA
    assert caught.value is FORBIDDEN
    assert user.told == [SCHEMA, ErrorCode.FORBIDDEN, SCHEMA]


async def test_change_that_cannot_be_used_is_unfit() -> None:
    """A new schema without what the configuration names does not leave the old one in place."""
    user = User(customers())
    async with known(user) as watch:
        user.store.replace(ROWS, DimensionSchema(SCHEMA.key, pa.schema({"tier": pa.int32()})))
        assert not await watch.is_unchanged()

        with pytest.raises(BackendError, match="default: no such column"):
            watch.known()
    assert user.told == [SCHEMA, ErrorCode.TABLE_UNAVAILABLE]


async def test_store_away_leaves_the_schema() -> None:
    """A doubt that cannot be settled now says so; rows that are known are still right."""
    user = User(customers())
    async with known(user) as watch:
        user.store.describe_error = DOWN
        assert not await watch.is_unchanged()
        assert not await watch.is_unchanged()  # in the pause: at once
        assert watch.known() is SCHEMA
        user.store.describe_error = None
        await user.store.wait_for_descriptions(3)

    assert user.told[0] is SCHEMA
    assert ErrorCode.BACKEND_UNAVAILABLE not in user.told


async def test_table_is_described_anew_without_a_doubt() -> None:
    """What no refused query shows is found by asking every so often."""
    user = User(customers(), recheck_s=0.001)
    async with watching(user) as watch:
        await watch.wait(PATIENCE_S)
        user.store.replace(ROWS.select(["id", "name"]), NAMES)
        await until(lambda: watch.known().is_same(NAMES))

    assert user.told == [SCHEMA, NAMES]
