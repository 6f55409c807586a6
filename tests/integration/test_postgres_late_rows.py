"""Rows that are inserted after their records were looked up, in a real table."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from lookup_core.settings import OnMissingSettings, RetrySettings
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from tests.integration.postgres_tables import put_table
from tests.service.engine import running
from tests.service.engine.running import PATIENCE_S, DiaryObserver, QueryEnded, told, typed
from tools.processes.postgres_server import Database

ROWS = pa.table({"id": pa.array([7]), "name": ["Ada"]})


@pytest.fixture
def table(database: Database) -> PostgresSettings:
    """A table where 7 is Ada."""
    return put_table(database, ROWS, key=["id"])


@asynccontextmanager
async def customers(
    table: PostgresSettings, on_missing: OnMissingSettings, diary: DiaryObserver
) -> AsyncIterator[Dimension]:
    """The table as a dimension, with these retries."""
    retry = RetrySettings(max_retries=0, on_missing=on_missing)
    async with PostgresBackend(table) as backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(running.settings(retry=retry), backend, observer=diary)
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        yield dimension
        task.cancel()


async def test_row_inserted_later_is_found(table: PostgresSettings, database: Database) -> None:
    """A row that is inserted after its record was asked for is found by a later try."""
    diary, often = DiaryObserver(), OnMissingSettings(max_retries=100, delay_s=0.05)
    async with customers(table, often, diary) as dimension:
        caller = asyncio.ensure_future(
            dimension.lookup(typed(7, 8), columns=None, timeout_s=PATIENCE_S)
        )
        await diary.wait_for_queries(1)
        database.execute("INSERT INTO dimension VALUES (8, 'Bert')")

        assert told(await caller) == {0: "fetched Ada", 1: "fetched Bert"}
        retries = dimension.statistics().retries
        await diary.wait_for_queries(1 + retries)

    assert retries >= 1
    expected = [QueryEnded(2, QueryStatus.OK)] + [QueryEnded(1, QueryStatus.OK)] * retries
    assert diary.queries == expected


async def test_row_that_is_never_inserted_is_missing(table: PostgresSettings) -> None:
    """After the retries the answer is `missing`: one query more than there are retries."""
    diary, twice = DiaryObserver(), OnMissingSettings(max_retries=2, delay_s=0.05)
    async with customers(table, twice, diary) as dimension:
        answers = await dimension.lookup(typed(8), columns=None, timeout_s=PATIENCE_S)
        await diary.wait_for_queries(3)

        assert told(answers) == {0: "missing"}
        assert dimension.statistics().retries == 2

    assert diary.queries == [QueryEnded(1, QueryStatus.OK)] * 3
