"""What a reader may see of a real table that changes: each case is a line of the documentation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from tests.hand_clock import HandClock
from tests.integration.postgres_tables import put_table
from tests.service.engine import running
from tests.service.engine.running import PATIENCE_S, told, typed
from tools.processes.postgres_server import Database

ROWS = pa.table({"id": pa.array([7, 8]), "name": ["Ada", "Bert"]})
TTL_S = 600.0
MARRY = "UPDATE dimension SET name = name || ' Smith'"


@pytest.fixture
def table(database: Database) -> PostgresSettings:
    """7 is Ada and 8 is Bert."""
    return put_table(database, ROWS, key=["id"])


@asynccontextmanager
async def customers(table: PostgresSettings, clock: HandClock) -> AsyncIterator[Dimension]:
    """The table as a dimension whose rows live for ten minutes."""
    async with PostgresBackend(table) as backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(running.settings(), backend, clock=clock)
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        yield dimension
        task.cancel()


async def names(dimension: Dimension, *keys: int) -> dict[int, str]:
    """What a reader sees."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=PATIENCE_S))


async def test_unannounced_change_shows_when_the_row_expires(
    table: PostgresSettings, database: Database
) -> None:
    """A change that nobody tells of is seen when the row expires, and not before."""
    clock = HandClock(1000.0)
    async with customers(table, clock) as dimension:
        assert await names(dimension, 7) == {0: "fetched Ada"}
        database.execute(MARRY)

        clock.now_s += TTL_S - 1
        assert await names(dimension, 7) == {0: "hit Ada"}
        clock.now_s += 1
        assert await names(dimension, 7) == {0: "fetched Ada Smith"}


async def test_rows_of_a_transaction_may_be_seen_half(
    table: PostgresSettings, database: Database
) -> None:
    """Of a transaction that changes two rows a reader may see one new and one old."""
    async with customers(table, HandClock(1000.0)) as dimension:
        await names(dimension, 7)
        database.execute(MARRY)

        assert await names(dimension, 7, 8) == {0: "hit Ada", 1: "fetched Bert Smith"}
