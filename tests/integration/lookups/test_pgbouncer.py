"""Lookups through a PgBouncer in transaction mode (D20)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups.tables import PATIENCE_S, described, names_of, put_table
from tests.integration.pgbouncer import SERVER_CONNECTIONS, PgBouncer
from tools.processes.postgres_server import Database
from tools.processes.until import until

ROWS = pa.table({"id": pa.array(range(100)), "name": [f"row {number}" for number in range(100)]})
SESSION_STATE = b"""SELECT (SELECT count(*) FROM pg_prepared_statements),
    current_setting('enable_seqscan'), current_setting('default_transaction_read_only'),
    current_setting('client_connection_check_interval')"""


@pytest.fixture
async def backend(database: Database, bouncer: PgBouncer) -> AsyncIterator[PostgresBackend]:
    """A described backend behind the pooler; it has more connections than the pooler's sessions."""
    table = put_table(database, ROWS, key=["id"])
    async with described(replace(table, dsn=bouncer.dsn, pgbouncer=True)) as backend:
        yield backend


async def test_lookups_share_few_sessions(backend: PostgresBackend, bouncer: PgBouncer) -> None:
    """Concurrent lookups share fewer sessions than they have connections."""
    await backend.probe(timeout_s=PATIENCE_S)
    found = await asyncio.gather(*(names_of(backend, number) for number in range(40)))

    assert found == [[f"row {number}"] for number in range(40)]
    assert backend.uses_index
    await asyncio.to_thread(until, lambda: idle_sessions(bouncer) == SERVER_CONNECTIONS)


async def test_sessions_keep_no_state(backend: PostgresBackend, bouncer: PgBouncer) -> None:
    """A session returns to the pooler without prepared statements and changed settings."""
    await asyncio.gather(*(names_of(backend, number) for number in range(8)))

    states = [await asyncio.to_thread(session_state, bouncer) for _ in range(4)]

    assert states == [(0, "on", "off", "0")] * 4


@pytest.mark.usefixtures("backend")
async def test_temporary_tables_take_no_place(bouncer: PgBouncer) -> None:
    """A temporary table that another client has left in a session is not looked up."""
    for _ in range(SERVER_CONNECTIONS):
        with psycopg.connect(bouncer.dsn, autocommit=True) as client:
            client.execute("CREATE TEMP TABLE IF NOT EXISTS dimension (id int, name text)")
    settings = PostgresSettings(bouncer.dsn, "dimension", ("id",), pgbouncer=True)

    found = []
    for _ in range(2 * SERVER_CONNECTIONS):
        async with described(settings) as client:
            found += await names_of(client, 7)

    assert found == ["row 7"] * (2 * SERVER_CONNECTIONS)


async def test_cancelled_query_answers_no_other(
    backend: PostgresBackend, database: Database
) -> None:
    """After a query times out behind a pooler, later queries receive their own rows."""
    with database.locked("dimension"), pytest.raises(BackendError) as caught:
        await names_of(backend, 1, timeout_s=0.1)

    found = await asyncio.gather(*(names_of(backend, number) for number in range(20)))

    assert caught.value.code is ErrorCode.TIMEOUT
    assert found == [[f"row {number}"] for number in range(20)]


def idle_sessions(bouncer: PgBouncer) -> object:
    """The number of idle server sessions of the pooler."""
    (pool,) = (each for each in bouncer.shown("POOLS") if each["database"] == bouncer.database)
    return pool["sv_idle"]


def session_state(bouncer: PgBouncer) -> tuple[object, ...]:
    """Prepared statements and settings of a session of the pooler."""
    with psycopg.connect(bouncer.dsn, autocommit=True) as connection:
        row = connection.execute(SESSION_STATE).fetchone()
    assert row is not None
    return row
