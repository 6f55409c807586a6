"""What breaks between a backend and its server, and how soon and how well it is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.backends.postgres import PostgresBackend
from service.backends.postgres_settings import PostgresSettings
from tests.integration.fault_proxy import FaultProxy
from tests.integration.postgres_server import IS_ALONE, IS_BLOCKED, Database, PostgresServer
from tests.integration.postgres_tables import put_table

GRACE_S = 0.25  # how much later than its timeout a fetch may end
PATIENCE_S = 5.0  # what would be a failure of the test, not of the backend
ROWS = pa.table({"id": pa.array([1, 2]), "name": ["one", "two"]})
KEYS = pa.record_batch({"id": pa.array([2])})
TERMINATE = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database()"""


@pytest.fixture
def settings(database: Database) -> PostgresSettings:
    """How the table is reached over the Unix socket."""
    return put_table(database, ROWS, key=["id"])


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[FaultProxy]:
    """The network between the backend and the server."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        yield proxy


@pytest.fixture
def proxied(settings: PostgresSettings, database: Database, proxy: FaultProxy) -> PostgresSettings:
    """How the table is reached through the proxy."""
    return replace(settings, dsn=proxy.dsn(database.name))


@asynccontextmanager
async def described(settings: PostgresSettings) -> AsyncIterator[PostgresBackend]:
    """A backend that has a warm connection."""
    async with PostgresBackend(settings) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        assert await names(backend) == ["two"]
        yield backend


async def names(backend: PostgresBackend, *, timeout_s: float = PATIENCE_S) -> list[str]:
    """The names in the rows that are fetched; a fetch that hangs fails the test."""
    async with asyncio.timeout(timeout_s + PATIENCE_S):
        fetched = await backend.fetch(KEYS, timeout_s=timeout_s)
    result: list[str] = fetched.rows["name"].to_pylist()
    return result


async def failure_of(backend: PostgresBackend, *, timeout_s: float = PATIENCE_S) -> BackendError:
    """What a fetch fails with."""
    with pytest.raises(BackendError) as caught:
        await names(backend, timeout_s=timeout_s)
    return caught.value


async def test_black_hole_ends_at_the_deadline(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """On a network that swallows everything a fetch ends at its timeout, and leaks no slot."""
    loop = asyncio.get_running_loop()
    async with described(replace(proxied, max_connections=1)) as backend:
        for _ in range(3):
            proxy.hold()
            start_s = loop.time()

            failure = await failure_of(backend, timeout_s=0.2)

            assert loop.time() - start_s < 0.2 + GRACE_S
            assert failure.is_retryable
            proxy.release()
            assert await names(backend) == ["two"]


async def test_black_hole_in_a_query_is_a_timeout(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """A query that was sent and not answered is a timeout."""
    async with described(proxied) as backend:
        proxy.hold()

        failure = await failure_of(backend, timeout_s=0.1)

    assert failure.code is ErrorCode.TIMEOUT


async def test_black_hole_does_not_delay_closing(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """Closing ends within a second though the server does not answer the farewell."""
    loop = asyncio.get_running_loop()
    async with described(proxied):
        proxy.hold()
        start_s = loop.time()

    assert loop.time() - start_s < 1.0 + GRACE_S


async def test_black_hole_while_describing_ends_in_time(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """Describing has one deadline for all the questions that it asks."""
    loop = asyncio.get_running_loop()
    async with described(proxied) as backend:
        proxy.hold()
        start_s = loop.time()

        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=0.2)

        assert loop.time() - start_s < 0.2 + GRACE_S
    assert caught.value.code is ErrorCode.TIMEOUT


async def test_slow_network_is_waited_for(proxied: PostgresSettings, proxy: FaultProxy) -> None:
    """A network that is slow, but not slower than the timeout, costs time only."""
    proxy.delay_s = 0.01

    async with described(proxied) as backend:
        assert await names(backend) == ["two"]


async def test_warm_fetch_is_one_round_trip(proxied: PostgresSettings, proxy: FaultProxy) -> None:
    """On a warm connection a fetch sends one request: no reset, no ping, no SET around it."""
    async with described(proxied) as backend:
        before = proxy.requests_total

        await names(backend)

        assert proxy.requests_total - before == 1


async def test_connections_stay_within_bounds(proxied: PostgresSettings, proxy: FaultProxy) -> None:
    """Many fetches at once share the connections that are allowed."""
    async with described(replace(proxied, max_connections=2)) as backend:
        results = await asyncio.gather(*(names(backend) for _ in range(20)))

    assert results == [["two"]] * 20
    assert proxy.connections_total <= 2


async def test_cut_connection_is_replaced(proxied: PostgresSettings, proxy: FaultProxy) -> None:
    """A connection that was cut while idle is not noticed by whoever asks next."""
    async with described(proxied) as backend:
        proxy.cut()

        assert await names(backend) == ["two"]


async def test_cut_query_is_asked_again(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """A connection that is cut in the middle of a query costs a second try, inside the deadline."""
    async with asyncio.timeout(PATIENCE_S), described(proxied) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(names(backend))
            await database.wait_for(IS_BLOCKED)
            proxy.cut()
            await asyncio.sleep(0)

        assert await task == ["two"]
    assert proxy.connections_total == 2


async def test_killed_session_is_replaced(settings: PostgresSettings, database: Database) -> None:
    """A session that the server ended while it was idle is not noticed by whoever asks next."""
    async with described(settings) as backend:
        database.execute(TERMINATE)

        assert await names(backend) == ["two"]


async def test_killed_query_is_asked_again(settings: PostgresSettings, database: Database) -> None:
    """A session that the server ends in the middle of a query costs a second try."""
    async with asyncio.timeout(PATIENCE_S), described(settings) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(names(backend))
            await database.wait_for(IS_BLOCKED)
            database.execute(TERMINATE)

        assert await task == ["two"]


async def test_query_is_asked_twice_at_most(settings: PostgresSettings, database: Database) -> None:
    """When the second try breaks, too, the engine decides what comes next."""
    async with asyncio.timeout(PATIENCE_S), described(settings) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(failure_of(backend))
            for _ in range(2):
                await database.wait_for(IS_BLOCKED)
                database.execute(TERMINATE)
            failure = await task

    assert failure.code is ErrorCode.UPSTREAM_UNAVAILABLE
    assert failure.is_retryable


async def test_vanished_server_is_unavailable(
    settings: PostgresSettings, database: Database, postgres_server: PostgresServer
) -> None:
    """When nothing listens any more, a fetch says so at once."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        backend = PostgresBackend(replace(settings, dsn=proxy.dsn(database.name)))
        await backend.__aenter__()
        await backend.describe(timeout_s=PATIENCE_S)

    failure = await failure_of(backend)
    await backend.__aexit__(None, None, None)

    assert failure.code is ErrorCode.UPSTREAM_UNAVAILABLE
    assert "nothing listens" in failure.detail


async def test_server_ends_long_queries(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """The statement timeout of the server is a timeout for the keys; the connection lives on."""
    async with described(replace(proxied, statement_timeout_s=0.1)) as backend:
        with database.locked("dimension"):
            failure = await failure_of(backend)

        assert failure.code is ErrorCode.TIMEOUT
        assert await names(backend) == ["two"]
    assert proxy.connections_total == 1


async def test_cancelled_fetch_waits_for_nothing(
    settings: PostgresSettings, database: Database
) -> None:
    """Cancellation ends at once; the server ends the orphan at its statement timeout."""
    loop = asyncio.get_running_loop()
    async with described(replace(settings, statement_timeout_s=0.5)) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(names(backend))
            await database.wait_for(IS_BLOCKED)
            start_s = loop.time()

            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)

            assert loop.time() - start_s < GRACE_S
            assert isinstance(results[0], asyncio.CancelledError)
            await asyncio.wait_for(database.wait_for(IS_ALONE), PATIENCE_S)
        assert await names(backend) == ["two"]


async def test_closing_ends_running_queries(settings: PostgresSettings, database: Database) -> None:
    """Closing gives a running query a second, and then ends it with an error."""
    loop = asyncio.get_running_loop()
    backend = PostgresBackend(settings)
    with database.locked("dimension"):
        async with backend:
            await backend.describe(timeout_s=PATIENCE_S)
            task = asyncio.ensure_future(failure_of(backend))
            await database.wait_for(IS_BLOCKED)
            start_s = loop.time()

        assert loop.time() - start_s < 1.0 + GRACE_S
        assert (await task).code is ErrorCode.UPSTREAM_UNAVAILABLE
