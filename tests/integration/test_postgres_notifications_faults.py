"""What breaks between a source of notifications and its server, and what is told then."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import Split
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import PostgresNotifications
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.grace import GRACE_S
from tests.integration.fault_proxy import FaultProxy
from tests.integration.notified_changes import (
    IS_LISTENING,
    PATIENCE_S,
    changes_of,
    failure_of,
    gap_in,
    listened,
    read_until,
    reading,
    schema_of,
)
from tests.integration.pgbouncer import pgbouncer
from tests.integration.trigger_messages import CHANNEL
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    running_postgres,
    running_standby,
)

IS_WAITING_FOR_STANDBY = "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')"
TERMINATE = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {IS_LISTENING}"


class BareSettings(PostgresNotificationsSettings):
    """Without the parameters that poolers refuse."""

    @property
    def server_settings(self) -> dict[str, str]:
        """What any pooler takes."""
        return {"application_name": "sidelook listen"}


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """How changes of a table `t` are heard."""
    return listened(database)


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[FaultProxy]:
    """The network between the source and the server."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        yield proxy


async def test_lost_connection_is_an_error(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """When the server ends the session, reading fails at once; the next reader tells of a gap."""
    async with reading(replace(settings, heartbeat_interval_s=2 * PATIENCE_S)) as reader:
        database.execute(TERMINATE)
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)

    assert failure.value.code is ErrorCode.CONNECTION_LOST
    async with reading(settings):
        pass


async def test_gap_of_a_lost_connection_is_told(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """The engine's coordinator connects again, and is told that any row may have changed."""
    told: asyncio.Queue[SplitPiece] = asyncio.Queue()
    coordinator = SourceCoordinator(
        PostgresNotifications(settings),
        schema_of(settings),
        take=told.put_nowait,
        settings=CoordinatorSettings("t"),
    )
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(coordinator.run())
        first = await told.get()
        database.execute(TERMINATE, "INSERT INTO t VALUES (8)")
        while not (second := await told.get()).changes:
            pass
        running.cancel()

    assert gap_in(first.changes).transaction_id < gap_in(second.changes).transaction_id


async def test_restarted_server_is_an_error() -> None:
    """When the server crashes, reading fails, opening fails while it is away, and works then."""
    with running_postgres() as server:
        settings = listened(server.new_database())
        async with reading(settings) as reader:
            server.crash()
            with pytest.raises(BackendError) as failure:
                await read_until(reader, lambda _: False)
        absence = await failure_of(settings)
        server.start()
        async with reading(settings):
            pass

    assert failure.value.code is ErrorCode.CONNECTION_LOST
    assert absence.code is ErrorCode.BACKEND_UNAVAILABLE


async def test_waiting_commit_is_not_told_early() -> None:
    """A commit that waits for a standby is told when others see it, however long that takes."""
    with running_postgres() as server:
        database = server.new_database()
        async with reading(listened(database)) as reader:
            waiting = "ALTER SYSTEM SET synchronous_standby_names = {}"
            database.execute(waiting.format("'nobody'"), "SELECT pg_reload_conf()")
            await database.wait_for("current_setting('synchronous_standby_names') = 'nobody'")
            database.execute("CHECKPOINT")  # by the process that makes others wait: it knows now
            insertion = asyncio.create_task(
                asyncio.to_thread(database.execute, "INSERT INTO t VALUES (9)")
            )
            await database.wait_for(IS_WAITING_FOR_STANDBY)
            early = await read_until(reader, lambda piece: piece.silent_s > 0.5)
            unseen = database.query("SELECT id FROM t")
            database.execute(waiting.format("''"), "SELECT pg_reload_conf()")
            told = await changes_of(reader)
            seen = database.query("SELECT id FROM t")
            await insertion

    assert ([each.changes for each in early if each.changes], unseen) == ([], [])
    assert (told, seen) == ([[9]], [(9,)])


async def test_frozen_network_shows_as_silence(
    database: Database, settings: PostgresNotificationsSettings, proxy: FaultProxy
) -> None:
    """While nothing comes through, reads tell for how long; then all is heard that was told."""
    proxied = replace(settings, dsn=proxy.dsn(database.name))
    async with reading(proxied) as reader:
        proxy.hold()
        silent = await read_until(reader, lambda piece: piece.silent_s > 0.9)
        database.execute("INSERT INTO t VALUES (4)")
        proxy.release()
        heard = await changes_of(reader)
        (piece,) = (await read_until(reader, lambda piece: piece.silent_s < 0.5))[-1:]

    assert [piece.changes for piece in silent if piece.changes] == []
    assert heard == [[4]]
    assert piece.is_caught_up


async def test_long_silence_is_an_error(
    database: Database, settings: PostgresNotificationsSettings, proxy: FaultProxy
) -> None:
    """A heartbeat that does not come back in its time ends the connection, and the reader."""
    proxied = replace(settings, dsn=proxy.dsn(database.name), heartbeat_timeout_s=0.5)
    # Not even the first one comes back: on a busy machine it might not do so in this time.
    async with PostgresNotifications(proxied).reader(schema_of(settings)) as reader:
        proxy.hold()
        await reader.assign(Split("notifications"), position=None)
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)

    assert failure.value.detail == "t: the listening session received no heartbeat"


async def test_closing_ends_on_a_frozen_network(
    database: Database, settings: PostgresNotificationsSettings, proxy: FaultProxy
) -> None:
    """A server that does not answer is not waited for beyond a second."""
    proxied = replace(settings, dsn=proxy.dsn(database.name))
    loop = asyncio.get_running_loop()
    async with reading(proxied) as reader:
        proxy.hold()
        await read_until(reader, lambda piece: piece.silent_s > 0.5)
        started_at = loop.time()

    assert loop.time() - started_at < 1.0 + GRACE_S


async def test_overflow_is_an_error(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """More than may wait ends the reader; the next one tells that something was lost."""
    async with reading(replace(settings, max_waiting_bytes=500)) as reader:
        database.execute("INSERT INTO t SELECT n FROM generate_series(1, 2000) AS n")
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)

    assert failure.value.detail == "t: notifications arrived faster than they were read"


async def test_standby_cannot_be_listened_to() -> None:
    """A standby is refused in plain words; where the DSN names the primary, too, it is found."""
    with running_postgres() as server:  # of its own: a standby copies all databases of its server
        database = server.new_database()
        settings = listened(database)
        with running_standby(server) as socket_folder:
            standby = Database(socket_folder, database.name)
            failure = await failure_of(replace(settings, dsn=standby.dsn()))
            both = f"{standby.dsn()},{database.socket_folder}"
            async with reading(replace(settings, dsn=both)):
                pass

    assert (failure.code, failure.detail) == (
        ErrorCode.BACKEND_UNAVAILABLE,
        "t: LISTEN needs the primary server, and the DSN leads to a standby",
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (PostgresNotificationsSettings, "the server or its pooler broke the protocol"),
        (BareSettings, "the DSN leads to a pooler; LISTEN needs the address of the server itself"),
    ],
)
async def test_poolers_are_refused(
    tmp_path: Path,
    postgres_server: PostgresServer,
    database: Database,
    kind: type[PostgresNotificationsSettings],
    reason: str,
) -> None:
    """PgBouncer would lose notifications without a word, so that no session behind it is taken."""
    try:
        with pgbouncer(tmp_path, database, system_user=postgres_server.system_user) as bouncer:
            failure = await failure_of(
                kind(bouncer.dsn, "t", CHANNEL, connect_timeout_s=PATIENCE_S)
            )
    except ToolUnavailable as error:
        pytest.skip(str(error))

    assert failure.detail == f"t: {reason}"
