"""What breaks between a backend and its server, and how soon and how well it is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from tests.grace import GRACE_S
from tests.integration.fault_proxy import FaultProxy
from tests.integration.postgres_tables import put_table
from tests.service.engine import running
from tests.service.engine.running import told, typed
from tools.processes.postgres_server import IS_ALONE, IS_BLOCKED, Database, PostgresServer

PATIENCE_S = 20.0  # what would be a failure of the test, not of the backend
ROWS = pa.table({"id": pa.array([1, 2]), "name": ["one", "two"]})
KEYS = pa.record_batch({"id": pa.array([2])})
SESSIONS = """SELECT pid FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database()"""
TERMINATE_BLOCKED = f"""SELECT pg_terminate_backend(pid, 5000) FROM ({SESSIONS}) AS s (pid)
    WHERE pid IN (SELECT pid FROM pg_locks WHERE NOT granted)"""
BLOCKED = "SELECT FROM pg_locks WHERE NOT granted"
TERMINATE = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database()"""


@pytest.fixture
def settings(database: Database) -> PostgresSettings:
    """How the table is reached over the Unix socket; no query is ended while a test looks on."""
    return replace(put_table(database, ROWS, key=["id"]), statement_timeout_s=PATIENCE_S)


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


async def test_cut_connection_is_lost_once(proxied: PostgresSettings, proxy: FaultProxy) -> None:
    """A connection that was cut while idle fails whoever asks next, and nobody after that."""
    async with described(proxied) as backend:
        proxy.cut()

        assert (await failure_of(backend)).code is ErrorCode.CONNECTION_LOST
        assert await names(backend) == ["two"]


async def test_cut_query_is_a_lost_connection(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """A connection that is cut in the middle of a query is told at once, and replaced."""
    async with asyncio.timeout(PATIENCE_S), described(proxied) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(failure_of(backend))
            await database.wait_for(IS_BLOCKED)
            proxy.cut()

            assert (await task).code is ErrorCode.CONNECTION_LOST
        assert await names(backend) == ["two"]
    assert proxy.connections_total == 2


async def test_killed_query_is_a_lost_connection(
    settings: PostgresSettings, database: Database
) -> None:
    """A session that the server ends in the middle of a query is told as what it is."""
    async with asyncio.timeout(PATIENCE_S), described(settings) as backend:
        with database.locked("dimension"):
            task = asyncio.ensure_future(failure_of(backend))
            await database.wait_for(IS_BLOCKED)
            database.execute(TERMINATE)
            failure = await task

    assert failure.code is ErrorCode.CONNECTION_LOST
    assert failure.is_retryable


async def test_lost_connections_are_nobodys_trouble(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """In a dimension a lost connection costs a second try, and no caller an error."""
    async with PostgresBackend(proxied) as backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(running.settings(), backend)
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        proxy.cut()
        idle = await dimension.lookup(typed(1), columns=None, timeout_s=PATIENCE_S)
        with database.locked("dimension"):
            asked = asyncio.ensure_future(
                dimension.lookup(typed(2), columns=None, timeout_s=PATIENCE_S)
            )
            await database.wait_for(IS_BLOCKED)
            database.execute(TERMINATE)
        killed = await asked
        task.cancel()

    assert (told(idle), told(killed)) == ({0: "fetched one"}, {0: "fetched two"})
    assert dimension.statistics().retries == 2


async def test_one_lost_connection_expires_the_others(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """After a restart one try is lost, not one for each connection that was idle meanwhile."""
    async with asyncio.timeout(PATIENCE_S), described(proxied) as backend:
        with database.locked("dimension"):
            asked = asyncio.gather(*(names(backend) for _ in range(4)))
            await database.wait_for(f"(SELECT count(*) = 4 FROM ({BLOCKED}))")
        await asked
        proxy.cut()

        failure = await failure_of(backend)
        found = [await names(backend) for _ in range(4)]

    assert failure.code is ErrorCode.CONNECTION_LOST
    assert found == [["two"]] * 4


async def test_expired_connections_are_not_used(
    settings: PostgresSettings, database: Database
) -> None:
    """After a loss a connection that is idle and well is ended, too: it cannot be known to be."""
    async with asyncio.timeout(PATIENCE_S), described(settings) as backend:
        with database.locked("dimension"):
            asked = asyncio.gather(*(failure_of(backend) for _ in range(2)))
            await database.wait_for(f"(SELECT count(*) = 2 FROM ({BLOCKED}))")
            await backend.probe(timeout_s=PATIENCE_S)  # a third connection, idle from now on
            before = ", ".join(str(pid) for (pid,) in database.query(SESSIONS))
            database.execute(TERMINATE_BLOCKED)
            await asked

        assert await asyncio.gather(*(names(backend) for _ in range(3))) == [["two"]] * 3
        await database.wait_for(f"NOT EXISTS ({SESSIONS} AND pid IN ({before}))")
    assert before.count(",") == 2


async def test_session_ended_by_its_server_is_lost(
    settings: PostgresSettings, database: Database
) -> None:
    """Whatever the server says when it ends a session, it is a lost connection: try again."""
    database.execute(f"ALTER DATABASE {database.name} SET transaction_timeout = '200ms'")
    connections = PostgresConnections(settings)  # describing might take longer than that
    await connections.open()

    with pytest.raises(BackendError) as caught:
        await connections.run(f"SELECT pg_sleep({PATIENCE_S})", [], timeout_s=PATIENCE_S)
    await connections.close()

    assert caught.value.code is ErrorCode.CONNECTION_LOST


async def test_failed_plan_leaves_no_transaction(
    settings: PostgresSettings, database: Database
) -> None:
    """A query that cannot be planned ends its connection, rather than leave it in the middle."""
    connections = PostgresConnections(settings)
    await connections.open()

    with pytest.raises(BackendError) as caught:
        await connections.plan("SELECT nothing", [], timeout_s=PATIENCE_S)
    await asyncio.wait_for(database.wait_for(IS_ALONE), PATIENCE_S)
    await connections.close()

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED


async def test_read_write_is_found_behind_read_only_sessions(settings: PostgresSettings) -> None:
    """That our sessions never write does not make a primary look like a server that only reads."""
    for attributes in ("any", "primary", "read-write", "prefer-standby"):
        dsn = f"{settings.dsn}&target_session_attrs={attributes}"

        async with described(replace(settings, dsn=dsn)) as backend:
            assert await names(backend) == ["two"]


@pytest.mark.parametrize("attributes", ["standby", "read-only"])
async def test_primary_is_no_standby(settings: PostgresSettings, attributes: str) -> None:
    """A server that is not what the DSN asks for is not used, and the reason is told."""
    dsn = f"{settings.dsn}&target_session_attrs={attributes}"

    async with PostgresBackend(replace(settings, dsn=dsn)) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.detail.endswith("no server has the session attributes of the DSN")


async def test_reply_names_its_server(settings: PostgresSettings, database: Database) -> None:
    """Rows come with the identity of the server that sent them, the same for all connections."""
    async with described(settings) as backend:
        fetched = [await backend.fetch(KEYS, timeout_s=PATIENCE_S) for _ in range(2)]

    ((identifier,),) = database.query("SELECT system_identifier::text FROM pg_control_system()")
    assert {each.store for each in fetched} == {f"{identifier}/1"}


async def test_role_that_may_not_ask_for_the_identity(
    settings: PostgresSettings, database: Database
) -> None:
    """On a hardened server rows come all the same, without the name of who sent them."""
    functions = ("pg_control_system()", "pg_control_checkpoint()")
    database.execute(
        "DROP ROLE IF EXISTS plain",
        "CREATE ROLE plain LOGIN",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain",
        *(f"REVOKE EXECUTE ON FUNCTION {each} FROM PUBLIC" for each in functions),
    )

    async with described(replace(settings, dsn=database.dsn(user="plain"))) as backend:
        fetched = await backend.fetch(KEYS, timeout_s=PATIENCE_S)

    assert (fetched.rows["name"].to_pylist(), fetched.store) == (["two"], "")


async def test_policy_that_comes_later_hides_nothing(
    settings: PostgresSettings, database: Database
) -> None:
    """Rows that a policy would filter are an error, not missing."""
    database.execute(
        "DROP ROLE IF EXISTS watched",
        "CREATE ROLE watched LOGIN",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO watched",
    )
    async with described(replace(settings, dsn=database.dsn(user="watched"))) as backend:
        database.execute("ALTER TABLE dimension ENABLE ROW LEVEL SECURITY")

        assert (await failure_of(backend)).code is ErrorCode.FORBIDDEN


async def test_probe_touches_no_table(settings: PostgresSettings, database: Database) -> None:
    """A locked table does not hide that the server lives."""
    async with described(settings) as backend:
        with database.locked("dimension"):
            await backend.probe(timeout_s=PATIENCE_S)


async def test_silent_network_is_left_by_a_probe(
    proxied: PostgresSettings, proxy: FaultProxy
) -> None:
    """After a probe without an answer no old connection is used: they may be dead, all of them."""
    async with described(proxied) as backend:
        proxy.hold()
        with pytest.raises(BackendError) as caught:
            await backend.probe(timeout_s=0.1)
        proxy.cut()
        proxy.release()

        assert caught.value.code is ErrorCode.TIMEOUT
        assert await names(backend) == ["two"]


async def test_vanished_server_is_unavailable(
    settings: PostgresSettings, database: Database, postgres_server: PostgresServer
) -> None:
    """When nothing listens any more, a fetch says so at once."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        backend = PostgresBackend(replace(settings, dsn=proxy.dsn(database.name)))
        await backend.__aenter__()
        await backend.describe(timeout_s=PATIENCE_S)

    with pytest.raises(BackendError):
        await backend.probe(timeout_s=PATIENCE_S)  # which may meet the connection of before
    failure = await failure_of(backend)
    await backend.__aexit__(None, None, None)

    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "nothing listens" in failure.detail


async def test_server_ends_long_queries(
    proxied: PostgresSettings, proxy: FaultProxy, database: Database
) -> None:
    """The statement timeout of the server is a timeout for the keys; the connection lives on."""
    async with described(replace(proxied, statement_timeout_s=1.0)) as backend:
        with database.locked("dimension"):
            failure = await failure_of(backend)

        assert failure.code is ErrorCode.TIMEOUT
        assert await names(backend) == ["two"]
    assert proxy.connections_total == 1


async def test_cancelled_fetch_waits_for_nothing(
    settings: PostgresSettings, database: Database
) -> None:
    """Cancellation ends at once; the server ends the orphan soon, as its client is gone."""
    loop = asyncio.get_running_loop()
    async with described(settings) as backend:
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
    await backend.__aenter__()
    await backend.describe(timeout_s=PATIENCE_S)
    with database.locked("dimension"):
        task = asyncio.ensure_future(failure_of(backend))
        await database.wait_for(IS_BLOCKED)
        start_s = loop.time()

        await backend.__aexit__(None, None, None)

        assert loop.time() - start_s < 1.0 + GRACE_S
        assert (await task).code is ErrorCode.CONNECTION_LOST
