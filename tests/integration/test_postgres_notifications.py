"""A source of notifications with a real server: what it tells, and what it does when it cannot."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change import Change, RowChanges, TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.sources.interface import SplitPiece, SplitReader
from service.sources.postgres_notifications import PostgresNotifications
from service.sources.postgres_notifications_session import PostgresNotificationsSettings
from tests.debian_tool import ToolUnavailable
from tests.integration.fault_proxy import FaultProxy
from tests.integration.pgbouncer import pgbouncer
from tests.integration.postgres_server import Database, PostgresServer, running_postgres
from tests.integration.postgres_standby import running_standby
from tests.integration.trigger_messages import CHANNEL, make_triggers
from tests.service.sources.source_contract import SourceCase, SourceContract, cut_off_read

Keys: TypeAlias = list[int]

PATIENCE_S = 10.0
SCHEMA = DimensionSchema(pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}))
GAP = TableChange("notifications may have been lost before the connection was made")
OVERFLOW = TableChange("notifications were dropped: more came than were read")
IS_LISTENING = "application_name = 'sidelook listen' AND datname = current_database()"
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


class TestPostgresNotifications(SourceContract):
    """The contract; nothing of a channel can be read again."""

    @pytest.fixture
    def case(self, settings: PostgresNotificationsSettings) -> SourceCase:
        """A channel, and that something was lost."""
        return SourceCase(PostgresNotifications(settings), SCHEMA)


def listened(database: Database) -> PostgresNotificationsSettings:
    """Make a table `t` with its triggers."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    make_triggers(database, "t", ["id"])
    return PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S, heartbeat_interval_s=0.05
    )


@asynccontextmanager
async def reading(settings: PostgresNotificationsSettings) -> AsyncIterator[SplitReader]:
    """A reader that has the split, and is caught up."""
    source = PostgresNotifications(settings)
    async with source.enumerator(SCHEMA) as enumerator:
        (split,) = await enumerator.discover()
    async with source.reader(SCHEMA) as reader:
        await reader.assign(split, position=None)
        pieces = await read_until(reader, lambda piece: piece.is_caught_up)
        assert [change for piece in pieces for change in piece.changes] == [GAP]
        yield reader


async def read_until(
    reader: SplitReader, condition: Callable[[SplitPiece], bool]
) -> list[SplitPiece]:
    """All pieces up to one for which this is true."""
    pieces: list[SplitPiece] = []
    async with asyncio.timeout(PATIENCE_S):
        while not (pieces and condition(pieces[-1])):
            pieces += await reader.read()
    return pieces


async def changes_of(reader: SplitReader) -> list[Keys | TableChange]:
    """The next changes; of rows, their keys."""
    pieces = await read_until(reader, lambda piece: bool(piece.changes))
    return [_plain(change) for change in pieces[-1].changes]


def told_ids(pieces: Sequence[SplitPiece]) -> list[int]:
    """The keys of all changes of rows."""
    changes = [change for piece in pieces for change in piece.changes]
    return [each for change in changes if isinstance(change, RowChanges) for each in ids(change)]


def ids(change: RowChanges) -> list[int]:
    """The keys, which may be any number of messages'."""
    keys: list[int] = change.keys["id"].to_pylist()
    return keys


async def failure_of(settings: PostgresNotificationsSettings) -> BackendError:
    """What opening a reader ends with."""
    with pytest.raises(BackendError) as failure:
        async with PostgresNotifications(settings).reader(SCHEMA):
            pass
    return failure.value


async def test_changes_are_told(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A change has its keys, its transaction, and no row; the position counts notifications."""
    async with reading(settings) as reader:
        with psycopg.connect(database.dsn()) as writer:
            writer.execute("INSERT INTO t VALUES (1), (2)")
            row = writer.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
            writer.commit()
        (piece,) = (await read_until(reader, lambda piece: bool(piece.changes)))[-1:]

    assert row is not None
    (change,) = piece.changes
    assert isinstance(change, RowChanges)
    assert sorted(ids(change)) == [1, 2]
    assert change.transaction_ids.tolist() == [row[0], row[0]]
    assert not change.has_row.any()
    assert not change.is_gone.any()
    assert (piece.split_id, piece.position) == ("notifications", 1)


async def test_truncation_is_told(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A change of the whole table has its transaction, too."""
    async with reading(settings) as reader:
        database.execute("TRUNCATE t")
        (change,) = (await read_until(reader, lambda piece: bool(piece.changes)))[-1].changes

    assert isinstance(change, TableChange)
    assert change.transaction_id > 0


async def test_unreadable_notifications_concern_all(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """What nobody can decode makes everything suspect, and what follows is told as before."""
    async with reading(settings) as reader:
        database.execute(f"NOTIFY \"{CHANNEL}\", '{{not json'")
        unreadable = await changes_of(reader)
        database.execute("INSERT INTO t VALUES (3)")
        readable = await changes_of(reader)

    assert [type(change) for change in unreadable] == [TableChange]
    assert readable == [[3]]


async def test_heartbeats_move_the_watermark(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """The server's clock is the watermark: what was committed before it is told."""
    before = database.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8")[0][0]
    async with reading(settings) as reader:
        first, *_, last = await read_until(reader, lambda piece: piece.watermark_ms > before + 100)
    after = database.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8")[0][0]

    assert before - 1 <= first.watermark_ms < last.watermark_ms <= after
    assert last.silent_s < PATIENCE_S


async def test_readers_do_not_hear_each_other(settings: PostgresNotificationsSettings) -> None:
    """Heartbeats are told to who sent them only: else a thousand sidecars had a million."""
    quiet = replace(settings, heartbeat_interval_s=PATIENCE_S)
    async with reading(quiet) as reader, reading(settings) as other:
        await read_until(other, lambda piece: piece.watermark_ms > 0)
        pieces = await reader.read()

    assert [(piece.changes, piece.watermark_ms > 0) for piece in pieces] == [((), False)]


async def test_nobody_else_can_fake_a_heartbeat(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """What others send to the channel of the heartbeats is neither time nor a sign of life."""
    quiet = replace(settings, heartbeat_interval_s=PATIENCE_S)
    async with reading(quiet) as reader:
        (process,) = database.query(f"SELECT pid FROM pg_stat_activity WHERE {IS_LISTENING}")[0]
        database.execute(f"NOTIFY sidelook_heartbeat_{process}, 'far future'")
        (piece,) = await reader.read()

    assert (piece.watermark_ms > 0, piece.changes) == (False, ())


async def test_lost_connection_is_an_error(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """When the server ends the session, reading fails; the next reader tells of a gap first."""
    async with reading(settings) as reader:
        database.execute(TERMINATE)
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)

    assert failure.value.code is ErrorCode.CONNECTION_LOST
    async with reading(settings):
        pass


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
    assert absence.code is ErrorCode.UPSTREAM_UNAVAILABLE


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
    proxied = replace(settings, dsn=proxy.dsn(database.name), heartbeat_timeout_s=0.2)
    async with reading(proxied) as reader:
        proxy.hold()
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)

    assert failure.value.detail == "t: no heartbeat came back from the session that listens"


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

    assert loop.time() - started_at < 2.0


async def test_session_leaves_nothing_behind(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """After closing, the server has no session of it."""
    async with reading(settings):
        counts = [database.query(f"SELECT count(*) FROM pg_stat_activity WHERE {IS_LISTENING}")]
    await database.wait_for(f"NOT EXISTS (SELECT FROM pg_stat_activity WHERE {IS_LISTENING})")

    assert counts == [[(1,)]]


async def test_overflow_concerns_all(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """More than may wait becomes a change of the table, and what follows is told as before."""
    async with reading(replace(settings, max_waiting_bytes=500)) as reader:
        database.execute("INSERT INTO t SELECT n FROM generate_series(1, 2000) AS n")
        flood = await changes_of(reader)
        database.execute("DELETE FROM t WHERE id = 5")
        after = await changes_of(reader)

    assert flood == [OVERFLOW]
    assert after == [[5]]


async def test_cancelled_reads_lose_nothing(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """Changes that come while nobody reads, or while a read is given up, are told by the next."""
    told: list[int] = []
    async with reading(settings) as reader:
        for number in range(20):
            database.execute(f"INSERT INTO t VALUES ({number})")
            told += told_ids(await cut_off_read(reader, after_s=0.0005 * number))
        async with asyncio.timeout(PATIENCE_S):
            while len(told) < 20:
                told += told_ids(await reader.read())

    assert told == list(range(20))


async def test_paused_split_is_not_told(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """What comes while the split is paused waits, and is told afterwards."""
    async with reading(settings) as reader:
        reader.pause({"notifications"})
        database.execute("INSERT INTO t VALUES (6)")
        paused = [await reader.read() for _ in range(3)]
        reader.pause(())
        told = await changes_of(reader)

    assert paused == [(), (), ()]
    assert told == [[6]]


async def test_any_role_may_listen(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A role that may connect and nothing else hears of changes, and sends heartbeats."""
    role = f"listener_of_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    async with reading(replace(settings, dsn=database.dsn(user=role))) as reader:
        database.execute("INSERT INTO t VALUES (7)")
        told = await changes_of(reader)

    assert told == [[7]]


async def test_standby_cannot_be_listened_to(
    postgres_server: PostgresServer, settings: PostgresNotificationsSettings, database: Database
) -> None:
    """A standby is refused in plain words; where the DSN names the primary, too, it is found."""
    with running_standby(postgres_server) as socket_folder:
        standby = Database(socket_folder, database.name)
        failure = await failure_of(replace(settings, dsn=standby.dsn()))
        both = f"{standby.dsn()},{database.socket_folder}"
        async with reading(replace(settings, dsn=both)):
            pass

    assert (failure.code, failure.detail) == (
        ErrorCode.UPSTREAM_UNAVAILABLE,
        "t: only the primary server can be listened to, and the DSN leads to a standby",
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (PostgresNotificationsSettings, "the server or a pooler before it broke the protocol"),
        (BareSettings, "the DSN leads to a pooler; to listen, name the server itself"),
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
            failure = await failure_of(kind(bouncer.dsn, "t", CHANNEL))
    except ToolUnavailable as error:
        pytest.skip(str(error))

    assert failure.detail == f"t: {reason}"


def _plain(change: Change) -> Keys | TableChange:
    return change if isinstance(change, TableChange) else ids(change)
