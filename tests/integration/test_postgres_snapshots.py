"""What a lookup tells of the transactions that it saw, over a real server."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import asyncpg
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.queries import (
    blocks_query,
    blocks_query_with_snapshot,
    lookup_query,
    query_with_snapshot,
    scanning_query,
)
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.postgres_tables import put_table
from tests.integration.test_postgres_plans import as_sent, nodes_of
from tests.service.connectors.backend_contract import BackendContract, OpenBackend
from tools.processes.postgres_server import Database

PATIENCE_S = 10.0
ROWS = 3000
SIZES = [1, 2000]  # keys: records, and blocks


class TestTellingBackend(BackendContract):
    """A backend that tells what it saw gives the same rows as one that does not."""

    @pytest.fixture
    def open_backend(self, database: Database) -> OpenBackend:
        """A backend over a table with the rows."""

        @asynccontextmanager
        async def opened(rows: pa.Table, key: Sequence[str]) -> AsyncIterator[PostgresBackend]:
            settings = replace(put_table(database, rows, key=key), is_followed=True)
            async with PostgresBackend(settings) as backend:
                yield backend

        return opened


@pytest.fixture
def table(database: Database) -> Database:
    """A database with a table of 3000 rows."""
    database.execute(
        "CREATE TABLE small (id int8 PRIMARY KEY, name text)",
        f"INSERT INTO small SELECT g, 'old' FROM generate_series(1, {ROWS}) AS g",
        "ANALYZE small",
    )
    return database


async def fetched_of(database: Database, key_count: int, *, first: int = 1) -> FetchedRows:
    """The rows of so many keys, and what their read saw; the second, as blocks come then only."""
    settings = PostgresSettings(database.dsn(), "small", ("id",), is_followed=True)
    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        one = pa.record_batch([pa.array([1])], schema=schema.key)
        await backend.fetch(one, timeout_s=PATIENCE_S)
        keys = pa.record_batch([pa.array(range(first, first + key_count))], schema=schema.key)
        return await backend.fetch(keys, timeout_s=PATIENCE_S)


def sees(fetched: FetchedRows, transaction_id: int) -> bool:
    """Whether the read saw this transaction, by the low 32 bits of its id."""
    assert fetched.snapshot is not None
    ids = np.array([transaction_id % 2**32], np.uint32)
    return bool(fetched.snapshot.sees(ids)[0])


@contextmanager
def update_in_progress(database: Database) -> Iterator[int]:
    """A transaction that has changed row 1, and commits in the end; its id."""
    with psycopg.connect(database.dsn()) as connection:
        connection.execute("UPDATE small SET name = 'new' WHERE id = 1")
        found = connection.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
        assert found is not None
        yield int(found[0])


@pytest.mark.parametrize("key_count", SIZES)
async def test_transaction_in_progress_is_not_seen(table: Database, key_count: int) -> None:
    """Until it has ended, what it changed is old, and the snapshot says that it is not in it."""
    with update_in_progress(table) as transaction_id:
        before = await fetched_of(table, key_count)
    after = await fetched_of(table, key_count)

    assert [before.rows["name"][0].as_py(), after.rows["name"][0].as_py()] == ["old", "new"]
    assert [sees(before, transaction_id), sees(after, transaction_id)] == [False, True]


@pytest.mark.parametrize("key_count", SIZES)
async def test_read_without_rows_tells_its_snapshot(table: Database, key_count: int) -> None:
    """That there is no row is as much in need of a proof."""
    with update_in_progress(table) as transaction_id:
        absent = await fetched_of(table, key_count, first=2 * ROWS)

    assert absent.ordinals.tolist() == []
    assert not sees(absent, transaction_id)


async def test_older_transaction_may_commit_later(table: Database) -> None:
    """A later one that has ended is seen, an older one that has not is not: ids are no order."""
    with update_in_progress(table) as older:
        table.execute("UPDATE small SET name = 'newer' WHERE id = 2")
        (newer,) = table.query("SELECT xmin::text::int8 FROM small WHERE id = 2")
        fetched = await fetched_of(table, 2)

    assert older < newer[0]
    assert [sees(fetched, older), sees(fetched, newer[0])] == [False, True]


@contextmanager
def commits_that_wait(database: Database) -> Iterator[None]:
    """Row 1 is updated; from some moment on, commits wait for a standby that never comes."""
    is_over = threading.Event()

    def update() -> None:
        while not is_over.is_set():  # the server takes its time to learn of the standby
            database.execute("UPDATE small SET name = 'new' WHERE id = 1")

    writer = threading.Thread(target=update)
    set_standby = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
    database.execute(set_standby, "SELECT pg_reload_conf()")
    try:
        writer.start()
        yield
    finally:
        is_over.set()
        database.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        writer.join(PATIENCE_S)


async def test_commit_that_waits_for_a_standby_is_not_seen(table: Database) -> None:
    """It is in the log, and may be told, long before its row is visible: the early event."""
    waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with commits_that_wait(table):
        await asyncio.wait_for(table.wait_for(f"EXISTS (SELECT {waiting})"), PATIENCE_S)
        ((transaction_id,),) = table.query(f"SELECT backend_xid::text::int8 {waiting}")
        before = await fetched_of(table, 1)
    after = await fetched_of(table, 1)

    assert [sees(before, transaction_id), sees(after, transaction_id)] == [False, True]


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("is_in_blocks", [False, True])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_telling_costs_no_other_plan(
    table: Database, mode: str, *, is_in_blocks: bool, has_index: bool
) -> None:
    """How the rows are found stays as it is; one row more is made beside it."""
    if not has_index:
        table.execute("ALTER TABLE small DROP CONSTRAINT small_pkey")

    plain, telling = await plans_of(table, mode, is_in_blocks=is_in_blocks, has_index=has_index)

    assert [node for node in telling if node not in {"Append", "Result", "Subquery Scan"}] == plain


async def plans_of(
    database: Database, mode: str, *, is_in_blocks: bool, has_index: bool
) -> tuple[list[str], list[str]]:
    """The nodes of a query's plan, without and with telling what it saw."""
    connection = await asyncpg.connect(database.dsn())
    try:
        settings = PostgresSettings(database.dsn(), "small", ("id",))
        found = await read_table(lambda query, values: connection.fetch(query, *values), settings)
        await connection.execute(f"SET plan_cache_mode = {mode}")
        query = (lookup_query if has_index else scanning_query)(found, is_ordered=False)
        plain = blocks_query(found, query) if is_in_blocks else query
        make_telling = blocks_query_with_snapshot if is_in_blocks else query_with_snapshot
        plans = []
        for text in (plain, make_telling(found, query)):
            statement = await connection.prepare(text)
            plan = await statement.explain(as_sent(tuple(range(500))))
            plans.append(nodes_of(plan[0]["Plan"]))
    finally:
        await connection.close()
    return plans[0], plans[1]
