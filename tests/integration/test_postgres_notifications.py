"""A source of notifications with a real server: what it tells."""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import PostgresNotifications
from service.connectors.postgres.settings import PostgresSettings
from tests.integration.notified_changes import (
    IS_LISTENING,
    PATIENCE_S,
    changes_of,
    ids,
    listened,
    read_until,
    reading,
    schema_of,
    told_ids,
)
from tests.integration.trigger_messages import CHANNEL, make_triggers
from tests.service.connectors.source_contract import SourceCase, SourceContract, cut_off_read
from tools.processes.postgres_server import Database

KEY_VALUES = [  # of each type that a key may have
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
]


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """How changes of a table `t` are heard."""
    return listened(database)


class TestPostgresNotifications(SourceContract):
    """The contract; nothing of a channel can be read again."""

    @pytest.fixture
    def case(self, settings: PostgresNotificationsSettings) -> SourceCase:
        """A channel, and that something was lost."""
        return SourceCase(PostgresNotifications(settings), schema_of(settings))


@pytest.mark.real_path
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


@pytest.mark.real_path
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
        first = (await read_until(reader, lambda piece: piece.watermark_ms >= before))[-1]
        last = (await read_until(reader, lambda piece: piece.watermark_ms > first.watermark_ms))[-1]
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


async def test_keys_of_all_types_are_found(database: Database) -> None:
    """Whatever a key is made of: by the key that was told, a lookup finds the changed row."""
    columns = ", ".join(f"k{at} {sql_type}" for at, (sql_type, _) in enumerate(KEY_VALUES))
    database.execute(f"CREATE TABLE t ({columns}, note text)")
    names = tuple(f"k{at}" for at in range(len(KEY_VALUES)))
    make_triggers(database, "t", names)
    settings = PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S
    )
    async with PostgresBackend(PostgresSettings(database.dsn(), "t", names)) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        async with reading(settings, schema) as reader:
            values = ", ".join(value for _, value in KEY_VALUES)
            database.execute(f"INSERT INTO t VALUES ({values}, 'found')")
            (piece,) = (await read_until(reader, lambda piece: bool(piece.changes)))[-1:]
        (change,) = piece.changes
        assert isinstance(change, RowChanges)
        fetched = await backend.fetch(change.keys, timeout_s=PATIENCE_S)

    assert fetched.rows["note"].to_pylist() == ["found"]


async def test_session_leaves_nothing_behind(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """After closing, the server has no session of it."""
    async with reading(settings):
        counts = [database.query(f"SELECT count(*) FROM pg_stat_activity WHERE {IS_LISTENING}")]
    await database.wait_for(f"NOT EXISTS (SELECT FROM pg_stat_activity WHERE {IS_LISTENING})")

    assert counts == [[(1,)]]


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
