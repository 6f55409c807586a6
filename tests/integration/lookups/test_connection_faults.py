"""Faults between a PostgreSQL backend and its server: lost, silent and slow connections.

How a sidecar under load recovers from them is tested in `protection`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres import connections
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.fault_proxy import FaultProxy
from tests.integration.lookups import tables
from tests.integration.lookups.tables import PATIENCE_S, names_of, put_table, serving
from tests.service.engine.running import lookup, start, until
from tools.processes.postgres_server import IS_ALONE, IS_BLOCKED, Database, PostgresServer

ROWS = pa.table({"id": pa.array([1, 2]), "name": ["one", "two"]})
BLOCKED = "SELECT FROM pg_locks WHERE NOT granted"
SESSIONS = """SELECT pid FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database()"""
TERMINATE = f"SELECT pg_terminate_backend(pid, 5000) FROM ({SESSIONS}) AS s (pid)"
TERMINATE_BLOCKED = f"{TERMINATE} WHERE pid IN (SELECT pid FROM pg_locks WHERE NOT granted)"
SHORT_S = 0.2  # a timeout that a held network exceeds


@pytest.fixture
def settings(database: Database) -> PostgresSettings:
    """The table over the Unix socket; the server ends no query during a test."""
    return replace(put_table(database, ROWS, key=["id"]), statement_timeout_s=PATIENCE_S)


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[FaultProxy]:
    """The network between the backend and the server."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        yield proxy


@pytest.fixture
def proxied(settings: PostgresSettings, database: Database, proxy: FaultProxy) -> PostgresSettings:
    """The table through the proxy."""
    return replace(settings, dsn=proxy.dsn(database.name))


@asynccontextmanager
async def warm(settings: PostgresSettings) -> AsyncIterator[PostgresBackend]:
    """A backend with an open connection whose statement is prepared."""
    async with asyncio.timeout(3 * PATIENCE_S), tables.described(settings) as backend:
        assert await names_of(backend, 2) == ["two"]
        yield backend


async def failure_of(backend: PostgresBackend, *, timeout_s: float = PATIENCE_S) -> BackendError:
    """The error of a fetch."""
    with pytest.raises(BackendError) as caught:
        await names_of(backend, 2, timeout_s=timeout_s)
    return caught.value


def tasks_of_backend() -> set[str]:
    """The coroutines that run as tasks, without those of the test's network."""
    names = {str(task.get_coro()).split()[2] for task in asyncio.all_tasks()}
    return {name for name in names if not name.startswith(FaultProxy.__name__)}


async def test_black_hole_ends_at_the_deadline(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """On a silent network, fetches and descriptions time out; no slot and no task is left (D4)."""
    async with warm(replace(proxied, max_connections=1)) as backend:
        before = tasks_of_backend()
        for _ in range(3):
            proxy.hold()
            fetch = await failure_of(backend, timeout_s=SHORT_S)
            with pytest.raises(BackendError) as description:
                await backend.describe(timeout_s=SHORT_S)
            proxy.release()

            assert (fetch.code, fetch.is_retryable) == (ErrorCode.TIMEOUT, True)
            assert description.value.is_retryable
            assert await names_of(backend, 2) == ["two"]
        await until(lambda: tasks_of_backend() <= before)
        proxy.hold()  # closing does not wait for the server, either


async def test_idle_connection_is_closed(
    settings: PostgresSettings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without queries leaves its place at the server to others, and is replaced."""
    monkeypatch.setattr(connections, "IDLE_S", SHORT_S)
    async with warm(settings) as backend:
        await database.wait_for(f"NOT EXISTS ({SESSIONS})")

        assert await names_of(backend, 2) == ["two"]


@pytest.mark.parametrize(("identity_s", "requests"), [(60.0, 1), (0.0, 2)])
async def test_warm_fetch_is_one_round_trip(
    proxied: PostgresSettings,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    *,
    identity_s: float,
    requests: int,
) -> None:
    """On an open connection, a fetch sends one request, and one before it for an old identity."""
    monkeypatch.setattr(connections, "IDENTITY_S", identity_s)
    async with warm(proxied) as backend:
        await names_of(backend, 2)  # prepares the query of small rows
        before = proxy.requests_total

        await names_of(backend, 2)

        assert proxy.requests_total - before == requests


@pytest.mark.parametrize("fault", ["cut", "terminate"])
async def test_interrupted_query_is_a_lost_connection(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database, fault: str
) -> None:
    """A query whose connection ends fails as retryable, and the connection is replaced (D2)."""
    end: Callable[[], object] = {
        "cut": proxy.cut,
        "terminate": lambda: database.execute(TERMINATE),
    }[fault]
    async with warm(proxied) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(failure_of(backend))
            await database.wait_for(IS_BLOCKED)
            end()
            failure = await task

        assert (failure.code, failure.is_retryable) == (ErrorCode.CONNECTION_LOST, True)
        assert await names_of(backend, 2) == ["two"]
    assert proxy.connections_total == 2


async def test_lost_connection_costs_a_retry_only(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """A dimension retries a query whose connection was lost, idle or busy; no lookup fails (D3)."""
    async with serving(PostgresBackend(proxied)) as dimension:
        proxy.cut()
        idle = await lookup(dimension, 1, timeout_s=PATIENCE_S)
        with database.locked("dimension"):
            busy = start(dimension, 2, timeout_s=PATIENCE_S)
            await database.wait_for(IS_BLOCKED)
            database.execute(TERMINATE)

        assert (idle, await busy) == ({0: "fetched one"}, {0: "fetched two"})
        assert dimension.statistics().retries == 2


async def test_expired_connections_are_not_used(
    settings: PostgresSettings, database: Database
) -> None:
    """After a loss, idle connections that work are closed, too; a probe reads no locked table."""
    async with warm(settings) as backend:
        with database.locked("dimension"):
            queries = asyncio.gather(*(failure_of(backend) for _ in range(2)))
            await database.wait_for(f"(SELECT count(*) = 2 FROM ({BLOCKED}))")
            await backend.probe(timeout_s=PATIENCE_S)  # opens a third connection, idle afterwards
            before = ", ".join(str(pid) for (pid,) in database.query(SESSIONS))
            database.execute(TERMINATE_BLOCKED)
            await queries

        assert await asyncio.gather(*(names_of(backend, 2) for _ in range(3))) == [["two"]] * 3
        await database.wait_for(f"NOT EXISTS ({SESSIONS} AND pid IN ({before}))")
    assert before.count(",") == 2


async def test_session_ended_by_its_server_is_lost(
    settings: PostgresSettings, database: Database
) -> None:
    """A session that the server ends by a time limit, as behind a pooler, is a lost connection."""
    database.execute(f"ALTER DATABASE {database.name} SET transaction_timeout = '200ms'")
    # A direct session would fix the limit; a description might take longer than it.
    async with PostgresConnections(replace(settings, pgbouncer=True)) as connections:
        with pytest.raises(BackendError) as caught:
            await connections.run(f"SELECT pg_sleep({PATIENCE_S})", [], timeout_s=PATIENCE_S)

    assert caught.value.code is ErrorCode.CONNECTION_LOST


async def test_failed_plan_leaves_no_transaction(
    settings: PostgresSettings, database: Database
) -> None:
    """A query that cannot be planned ends its connection, which is inside a transaction."""
    async with PostgresConnections(settings) as connections:
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        with pytest.raises(BackendError) as caught:
            await connections.plan("SELECT nothing", [], deadline_s=deadline_s)
        await database.wait_for(IS_ALONE)

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ("any", None),
        ("primary", None),
        ("read-write", None),  # although the sidecar's own sessions are read-only
        ("prefer-standby", None),
        ("standby", ErrorCode.BACKEND_UNAVAILABLE),
        ("read-only", ErrorCode.BACKEND_UNAVAILABLE),
    ],
)
async def test_server_needs_the_wanted_attributes(
    settings: PostgresSettings, attributes: str, code: ErrorCode | None
) -> None:
    """A primary is used unless `target_session_attrs` needs another server (D8)."""
    dsn = f"{settings.dsn}&target_session_attrs={attributes}"
    failure: BackendError | None = None
    async with PostgresBackend(replace(settings, dsn=dsn)) as backend:
        try:
            await backend.describe(timeout_s=PATIENCE_S)
        except BackendError as error:
            failure = error

    assert (failure and failure.code) == code


async def test_failed_probe_expires_connections(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """After a probe without an answer, no older connection is used."""
    async with warm(proxied) as backend:
        proxy.hold()
        with pytest.raises(BackendError) as caught:
            await backend.probe(timeout_s=SHORT_S)
        proxy.cut()
        proxy.release()

        assert caught.value.code is ErrorCode.TIMEOUT
        assert await names_of(backend, 2) == ["two"]


async def test_server_ends_long_queries(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """The server's statement timeout is a timeout of the keys; the connection stays open (D7)."""
    async with warm(replace(proxied, statement_timeout_s=1.0)) as backend:
        with database.locked("dimension"):
            failure = await failure_of(backend)

        assert failure.code is ErrorCode.TIMEOUT
        assert await names_of(backend, 2) == ["two"]
    assert proxy.connections_total == 1


async def test_cancelled_fetch_leaves_no_query(
    settings: PostgresSettings, database: Database
) -> None:
    """A cancelled fetch ends while its query is blocked, and the server ends the query (H19)."""
    async with warm(settings) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(names_of(backend, 2))
            await database.wait_for(IS_BLOCKED)
            task.cancel()
            await asyncio.wait([task])

            assert task.cancelled()
            await database.wait_for(IS_ALONE)
        assert await names_of(backend, 2) == ["two"]


async def test_closing_ends_running_queries(settings: PostgresSettings, database: Database) -> None:
    """Closing a backend fails a query that is still blocked."""
    backend = PostgresBackend(settings)
    await backend.__aenter__()
    await backend.describe(timeout_s=PATIENCE_S)
    with database.locked("dimension"):
        task = asyncio.ensure_future(failure_of(backend))
        await database.wait_for(IS_BLOCKED)

        await backend.__aexit__(None, None, None)

        assert (await task).code is ErrorCode.CONNECTION_LOST
