"""Notifications of a table's triggers, as a source of changes on a real server."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.sessions import PostgresSettings
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.integration.fault_proxy import FaultProxy
from tests.integration.lookups.tables import changing, described
from tests.integration.notifications.notified_changes import (
    IS_LISTENING,
    PATIENCE_S,
    TERMINATE,
    changed_ids,
    changes_of,
    end_of,
    gap_in,
    ids,
    listened,
    notifications_of,
    read_until,
    reading,
    refusal_of,
    schema_of,
)
from tests.integration.notifications.trigger_messages import CHANNEL, make_triggers
from tests.integration.pgbouncer import PgBouncer
from tests.service.connectors.source_contract import SourceCase, SourceContract, cut_off_read
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    running_postgres,
    running_standby,
)

KEY_VALUES = [  # a value of each key type
    ("int2", "-32768"),
    ("int4", "7"),
    ("int8", "9223372036854775807"),
    ("bool", "true"),
    ("numeric(38, 2)", "-123456789012345678901234567890.10"),
    ("numeric(38, 0)", "12345678901234567890123456789012345678"),
    ("numeric(5, 2)", "5"),
    ("text", """'it''s "ü"'"""),
    ("varchar(9)", "E'\\\\ \\n'"),
    ("bytea", "decode('00ff5c', 'hex')"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"),
    ("date", "'0001-01-01'"),
    ("timestamp", "'2026-02-28 12:00:00.123456'"),
    ("timestamptz", "'9999-12-31 23:59:59.999999+00'"),
    ("amount", "12345678901234568.89"),
    ("fee", "-99999999999999999999999.99"),
    *((f"own_{name}", value) for name, value in (("int8", "7"), ("bytea", "'\\x00ff'"))),
    ("own_timestamptz", "'2026-02-28 12:00+00'"),
]
DOMAINS = (
    "CREATE DOMAIN amount AS numeric(20, 2)",
    "CREATE DOMAIN any_fee AS numeric(25, 2)",
    "CREATE DOMAIN fee AS any_fee CHECK (VALUE < 0)",
    *(f"CREATE DOMAIN own_{name} AS {name}" for name in ("int8", "bytea", "timestamptz")),
)
NOW_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8"
IS_WAITING_FOR_STANDBY = "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')"


class BareSettings(PostgresNotificationsSettings):
    """Without the session parameters that poolers refuse."""

    @property
    def server_settings(self) -> dict[str, str]:
        """The application name, which poolers accept."""
        return {"application_name": "sidelook listen"}


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """The source of changes of a table `t`."""
    return listened(database)


class TestPostgresNotifications(SourceContract):
    """The contract of sources whose pieces cannot be read again."""

    @pytest.fixture
    def case(self, database: Database, settings: PostgresNotificationsSettings) -> SourceCase:
        """A channel; its first piece is the gap."""
        return SourceCase(PostgresNotifications(settings), schema_of(database))


@pytest.mark.real_path
async def test_changes_have_keys_and_transactions(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A change has its keys, its transaction and no row; a truncation concerns the table."""
    async with reading(settings, schema_of(database)) as reader:
        with changing(database, "INSERT INTO t VALUES (1), (2)") as transaction_id:
            pass
        piece = (await read_until(reader, lambda piece: bool(piece.changes)))[-1]
        database.execute("TRUNCATE t")
        (truncation,) = await changes_of(reader)

    (change,) = piece.changes
    assert isinstance(change, RowChanges)
    assert sorted(ids(change)) == [1, 2]
    assert change.transaction_ids.tolist() == [transaction_id] * 2
    assert not change.has_row.any()
    assert not change.is_gone.any()
    assert (piece.split_id, piece.position) == ("notifications", 1)
    assert isinstance(truncation, TableChange)
    assert truncation.transaction_id > 0


async def test_heartbeats_move_the_watermark(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """The watermark is the server's clock at a heartbeat; no session is left after closing."""
    ((before_ms,),) = database.query(NOW_MS)
    async with reading(settings, schema_of(database)) as reader:
        first = (await read_until(reader, lambda piece: piece.watermark_ms >= before_ms))[-1]
        last = (await read_until(reader, lambda piece: piece.watermark_ms > first.watermark_ms))[-1]
        sessions = database.query(f"SELECT count(*) FROM pg_stat_activity WHERE {IS_LISTENING}")
    ((after_ms,),) = database.query(NOW_MS)
    await database.wait_for(f"NOT EXISTS (SELECT FROM pg_stat_activity WHERE {IS_LISTENING})")

    assert before_ms - 1 <= first.watermark_ms < last.watermark_ms <= after_ms
    assert sessions == [(1,)]


async def test_heartbeats_are_private(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """Heartbeats of other readers and forged ones do not count (E22)."""
    quiet, schema = replace(settings, heartbeat_interval_s=600.0), schema_of(database)
    async with reading(quiet, schema) as reader:
        ((process,),) = database.query(f"SELECT pid FROM pg_stat_activity WHERE {IS_LISTENING}")
        async with reading(settings, schema) as other:
            await read_until(other, lambda piece: piece.watermark_ms > 0)
        database.execute(f"NOTIFY sidelook_heartbeat_{process}, 'far future'")
        pieces = await reader.read()

    assert [(piece.changes, piece.watermark_ms > 0) for piece in pieces] == [((), False)]


async def test_sign_follows_a_request_at_once(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """On request the next heartbeat is sent at once, and all changes before it are read first."""
    quiet, schema = replace(settings, heartbeat_interval_s=600.0), schema_of(database)
    async with reading(quiet, schema) as reader:
        requested_at = asyncio.get_running_loop().time()
        database.execute("INSERT INTO t VALUES (1)")
        reader.request_sign()
        pieces = await read_until(
            reader,
            lambda piece: (
                asyncio.get_running_loop().time() - (piece.requested_s or 0.0) >= requested_at
            ),
        )

    assert changed_ids(pieces) == [1]


async def test_keys_of_all_types_are_found(database: Database) -> None:
    """A lookup by a notified key finds the row, whatever the settings of its writer's session."""
    columns = ", ".join(f"k{at} {sql_type}" for at, (sql_type, _) in enumerate(KEY_VALUES))
    database.execute(*DOMAINS, f"CREATE TABLE t ({columns}, note text)")
    names = tuple(f"k{at}" for at in range(len(KEY_VALUES)))
    make_triggers(database, "t", names)
    settings = PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S
    )
    async with described(PostgresSettings(database.dsn(), "t", names)) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        async with reading(settings, schema) as reader:
            values = ", ".join(value for _, value in KEY_VALUES)
            with psycopg.connect(database.dsn()) as writer:
                writer.execute("SET bytea_output = 'escape'; SET timezone = 'Asia/Tokyo'")
                writer.execute("SET datestyle = 'German'")
                writer.execute(f"INSERT INTO t VALUES ({values}, 'found')".encode())
            piece = (await read_until(reader, lambda piece: bool(piece.changes)))[-1]
        (change,) = piece.changes
        assert isinstance(change, RowChanges)
        fetched = await backend.fetch(change.keys, timeout_s=PATIENCE_S)

    assert fetched.rows["note"].to_pylist() == ["found"]


async def test_long_keys_have_any_encoding(postgres_server: PostgresServer) -> None:
    """Keys that are longer in UTF-8 than in their database drop their rows only."""
    database = postgres_server.new_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    database.execute("CREATE TABLE t (id text PRIMARY KEY, note text)")
    make_triggers(database, "t", ["id"])
    async with described(PostgresSettings(database.dsn(), "t", ("id",))) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        async with reading(notifications_of(database), schema) as reader:
            database.execute(
                "INSERT INTO t SELECT repeat(chr(233), 2400) || k FROM generate_series(1, 2) AS k"
            )
            pieces = await read_until(reader, lambda piece: bool(piece.changes))

    assert sorted(map(str, changed_ids(pieces))) == [f"{'é' * 2400}{number}" for number in (1, 2)]


async def test_cancelled_reads_lose_nothing(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """Changes during a cancelled read are returned by the next one, exactly once."""
    found: list[int] = []
    async with reading(settings, schema_of(database)) as reader:
        for number in range(20):
            database.execute(f"INSERT INTO t VALUES ({number})")
            found += changed_ids(await cut_off_read(reader, after_s=0.0005 * number))
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 20:
                found += changed_ids(await reader.read())

    assert found == list(range(20))


async def test_any_role_may_listen(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A role that may only connect receives changes and sends heartbeats."""
    role = f"listener_of_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    own = replace(settings, dsn=database.dsn(user=role))
    async with reading(own, schema_of(database)) as reader:
        database.execute("INSERT INTO t VALUES (7)")
        changes = await changes_of(reader)

    assert changes == [[7]]


async def test_waiting_commit_is_not_read_early() -> None:
    """A commit that waits for a synchronous standby is read when its rows are visible (H1)."""
    with running_postgres() as server:
        database = server.new_database()
        settings = listened(database)
        async with reading(settings, schema_of(database)) as reader:
            standby = "ALTER SYSTEM SET synchronous_standby_names = {}"
            database.execute(standby.format("'absent'"), "SELECT pg_reload_conf()")
            await database.wait_for("current_setting('synchronous_standby_names') = 'absent'")
            database.execute("CHECKPOINT")  # the checkpointer makes commits wait; it knows now
            insertion = asyncio.create_task(
                asyncio.to_thread(database.execute, "INSERT INTO t VALUES (9)")
            )
            await database.wait_for(IS_WAITING_FOR_STANDBY)
            early = await read_until(reader, lambda piece: piece.silent_s > 0.5)
            hidden = database.query("SELECT id FROM t")
            database.execute(standby.format("''"), "SELECT pg_reload_conf()")
            changes = await changes_of(reader)
            visible = database.query("SELECT id FROM t")
            await insertion

    assert ([each.changes for each in early if each.changes], hidden) == ([], [])
    assert (changes, visible) == ([[9]], [(9,)])


async def test_lost_connection_is_a_gap(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """After a lost connection the coordinator reconnects, and any row may have changed (E22)."""
    pieces: asyncio.Queue[SplitPiece] = asyncio.Queue()
    coordinator = SourceCoordinator(
        PostgresNotifications(settings),
        schema_of(database),
        take=pieces.put_nowait,
        settings=CoordinatorSettings("t"),
    )
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(coordinator.run())
        first = await pieces.get()
        database.execute(TERMINATE, "INSERT INTO t VALUES (8)")
        while not (second := await pieces.get()).changes:
            pass
        running.cancel()

    assert gap_in(first.changes).transaction_id < gap_in(second.changes).transaction_id


async def test_silent_network_shows_as_silence(
    database: Database, settings: PostgresNotificationsSettings, postgres_server: PostgresServer
) -> None:
    """While the network is silent, silence grows; held changes are read when it recovers."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        proxied = replace(settings, dsn=proxy.dsn(database.name))
        async with reading(proxied, schema_of(database)) as reader:
            proxy.hold()
            silent = await read_until(reader, lambda piece: piece.silent_s > 0.9)
            database.execute("INSERT INTO t VALUES (4)")
            proxy.release()
            changes = await changes_of(reader)
            last = (await read_until(reader, lambda piece: piece.silent_s < 0.5))[-1]
            proxy.hold()  # closing does not wait for the server

    assert [piece.changes for piece in silent if piece.changes] == []
    assert (changes, last.is_caught_up) == ([[4]], True)


async def test_overflow_ends_the_reader(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """More waiting notifications than `max_waiting_bytes` end the reader (E22)."""
    small = replace(settings, max_waiting_bytes=500)
    async with reading(small, schema_of(database)) as reader:
        database.execute("INSERT INTO t SELECT n FROM generate_series(1, 2000) AS n")
        failure = await end_of(reader)

    assert failure.is_retryable


async def test_standby_cannot_be_listened_to() -> None:
    """A standby is refused; a DSN that also names the primary leads to the primary."""
    with running_postgres() as server:  # a standby copies all databases of its server
        database = server.new_database()
        settings, schema = listened(database), schema_of(database)
        with running_standby(server) as socket_folder:
            standby = Database(socket_folder, database.name)
            failure = await refusal_of(replace(settings, dsn=standby.dsn()), schema)
            both = f"{standby.dsn()},{database.socket_folder}"
            async with reading(replace(settings, dsn=both), schema):
                pass

    assert failure.is_retryable
    assert "standby" in failure.detail


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("kind", [PostgresNotificationsSettings, BareSettings])
async def test_poolers_are_refused(
    database: Database, bouncer: PgBouncer, kind: type[PostgresNotificationsSettings]
) -> None:
    """A session behind PgBouncer, which would lose notifications, is refused (D20)."""
    pooled = kind(bouncer.dsn, "t", CHANNEL, connect_timeout_s=PATIENCE_S)

    failure = await refusal_of(pooled, schema_of(database))

    assert "pooler" in failure.detail
