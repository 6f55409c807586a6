"""Behind a real PgBouncer that pools transactions: the same answers, nothing of a session."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.pgbouncer import SERVER_CONNECTIONS, PgBouncer, pgbouncer
from tests.integration.postgres_tables import put_table
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import IS_BLOCKED, Database, PostgresServer
from tools.processes.until import until

PATIENCE_S = 10.0
ROWS = pa.table({"id": pa.array(range(100)), "name": [f"row {number}" for number in range(100)]})
TERMINATE = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""

TERMINATE_BLOCKED = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'"""
LEFTOVERS = b"""SELECT (SELECT count(*) FROM pg_prepared_statements),
    current_setting('enable_seqscan'), current_setting('default_transaction_read_only'),
    current_setting('client_connection_check_interval')"""


@pytest.fixture
def table(database: Database) -> PostgresSettings:
    """A table of a hundred rows, reached directly."""
    return put_table(database, ROWS, key=["id"])


@pytest.fixture
def bouncer(
    tmp_path: Path, database: Database, postgres_server: PostgresServer
) -> Iterator[PgBouncer]:
    """A PgBouncer with two connections to the server."""
    try:
        with pgbouncer(tmp_path, database, system_user=postgres_server.system_user) as bouncer:
            yield bouncer
    except ToolUnavailable as error:
        pytest.skip(str(error))


@asynccontextmanager
async def described(table: PostgresSettings, bouncer: PgBouncer) -> AsyncIterator[PostgresBackend]:
    """A backend behind it, with eight connections of its own."""
    async with PostgresBackend(replace(table, dsn=bouncer.dsn, pgbouncer=True)) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        yield backend


async def names(backend: PostgresBackend, *ids: int) -> list[str]:
    """The names of the rows."""
    keys = pa.record_batch({"id": pa.array(ids)})
    async with asyncio.timeout(PATIENCE_S):
        fetched = await backend.fetch(keys, timeout_s=PATIENCE_S)
    result: list[str] = fetched.rows["name"].to_pylist()
    return result


async def test_lookups_pass_a_pooler(table: PostgresSettings, bouncer: PgBouncer) -> None:
    """Describing, looking for an index, probing and fetching work; whose rows they are is open."""
    async with described(table, bouncer) as backend:
        await backend.probe(timeout_s=PATIENCE_S)
        fetched = await backend.fetch(pa.record_batch({"id": [7]}), timeout_s=PATIENCE_S)

        assert backend.uses_index
    assert (fetched.rows["name"].to_pylist(), fetched.store) == (["row 7"], "")


async def test_many_lookups_share_few_sessions(table: PostgresSettings, bouncer: PgBouncer) -> None:
    """More lookups at a time than the pooler has sessions get their own rows, each time."""
    async with described(table, bouncer) as backend:
        for _ in range(5):
            found = await asyncio.gather(*(names(backend, number) for number in range(40)))

            assert found == [[f"row {number}"] for number in range(40)]
    await asyncio.to_thread(until, lambda: idle_sessions(bouncer) == SERVER_CONNECTIONS)


async def test_sessions_are_left_as_they_were(table: PostgresSettings, bouncer: PgBouncer) -> None:
    """Nothing stays behind in a session that others get next: no statement, no setting."""
    async with described(table, bouncer) as backend:
        await asyncio.gather(*(names(backend, number) for number in range(8)))

        left = [await asyncio.to_thread(leftovers, bouncer) for _ in range(4)]

    assert left == [(0, "on", "off", "0")] * 4


async def test_killed_sessions_are_replaced(
    table: PostgresSettings, bouncer: PgBouncer, database: Database
) -> None:
    """Sessions that end behind the pooler while they are idle cost nobody anything."""
    async with described(table, bouncer) as backend:
        await names(backend, 1)
        await asyncio.to_thread(database.execute, TERMINATE)

        assert await until_it_heals(backend) == ["row 7"]


async def test_query_killed_behind_the_pooler_is_lost(
    table: PostgresSettings, bouncer: PgBouncer, database: Database
) -> None:
    """A session that ends in the middle of a query is a lost connection: to be tried again."""
    async with described(table, bouncer) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(names(backend, 7))
            await database.wait_for(IS_BLOCKED)
            await asyncio.to_thread(database.execute, TERMINATE_BLOCKED)
            with pytest.raises(BackendError) as caught:
                await task

        assert caught.value.code is ErrorCode.CONNECTION_LOST
        assert await until_it_heals(backend) == ["row 7"]


async def test_cancelled_query_harms_no_other(
    table: PostgresSettings, bouncer: PgBouncer, database: Database
) -> None:
    """Who gives a query up behind a pooler leaves nothing that answers the next one."""
    async with described(table, bouncer) as backend:
        with database.locked("dimension"), pytest.raises(BackendError) as caught:
            await backend.fetch(pa.record_batch({"id": [1]}), timeout_s=0.1)

        found = await asyncio.gather(*(names(backend, number) for number in range(20)))

    assert caught.value.code is ErrorCode.TIMEOUT
    assert found == [[f"row {number}"] for number in range(20)]


async def test_restarted_server_heals_behind_the_pooler(
    table: PostgresSettings, bouncer: PgBouncer, postgres_server: PostgresServer
) -> None:
    """A crash of the server behind the pooler is over soon after its restart."""
    async with described(table, bouncer) as backend:
        await asyncio.to_thread(postgres_server.crash)
        with pytest.raises(BackendError) as caught:
            await backend.fetch(pa.record_batch({"id": [7]}), timeout_s=0.5)
        await asyncio.to_thread(postgres_server.start)

        assert caught.value.is_retryable
        assert await until_it_heals(backend) == ["row 7"]


async def until_it_heals(backend: PostgresBackend) -> list[str]:
    """The name of row 7, asked for again as long as the failure is one that may pass."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await names(backend, 7)
            except BackendError as error:
                if not error.is_retryable:
                    raise
                await asyncio.sleep(0.05)  # the pace of the asking, no synchronisation


def idle_sessions(bouncer: PgBouncer) -> object:
    """How many sessions the pooler keeps that nobody uses."""
    (pool,) = (each for each in bouncer.shown("POOLS") if each["database"] == bouncer.database)
    return pool["sv_idle"]


def leftovers(bouncer: PgBouncer) -> tuple[object, ...]:
    """What a session that the pooler hands out has kept from its last user."""
    with psycopg.connect(bouncer.dsn, autocommit=True) as connection:
        row = connection.execute(LEFTOVERS).fetchone()
    assert row is not None
    return row
