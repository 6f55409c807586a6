"""Watched tables: a changelog reports ALTER TABLE, and changes of the set of partitions."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.splits import Split
from service.connectors.ports.source import SplitPiece, SplitReader
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import WatchedTable
from tests.integration.notifications.notified_changes import PATIENCE_S, end_of
from tests.integration.notifications.test_partitions import CHANGES_OF_PARTITIONS, NEW, PARTED
from tests.service.connectors.fake_source import FakeSource
from tools.processes.postgres_server import Database

SPLIT = Split("changelog 0")
PLAIN = (
    "CREATE TABLE t (id int PRIMARY KEY, note text, other text)",
    "INSERT INTO t VALUES (1, 'a', 'b')",
)
VIRTUAL = ("CREATE TABLE t (id int PRIMARY KEY, note text GENERATED ALWAYS AS ('a') VIRTUAL)",)
SWAP = "RENAME note TO old; ALTER TABLE t RENAME other TO note; ALTER TABLE t RENAME old TO other"


NOWHERE = "postgresql://127.0.0.1:1/none"


async def schema_of(database: Database) -> DimensionSchema:
    """The schema of the table `t`."""
    async with PostgresBackend(settings_of(database)) as backend:
        return await backend.describe(timeout_s=PATIENCE_S)


def settings_of(database: Database) -> PostgresSettings:
    """The table `t` by its key."""
    return PostgresSettings(database.dsn(), "t", ("id",), ("note",))


def watched(settings: PostgresSettings) -> WatchedTable:
    """A changelog of many pieces without changes, whose table is compared all the time."""
    changes = FakeSource(is_bounded=False)
    changes.add(SPLIT.id, *(SplitPiece(SPLIT.id, position) for position in range(1, 20_000)))
    return WatchedTable(changes, settings, interval_s=0.0)


async def change_in(reader: SplitReader) -> TableChange:
    """The next change."""
    changes: Sequence[object] = ()
    async with asyncio.timeout(PATIENCE_S):
        while not changes:
            (piece,) = await reader.read()
            changes = piece.changes
            await asyncio.sleep(0)
    (change,) = changes
    assert isinstance(change, TableChange)
    return change


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (PLAIN, "ALTER TABLE t ALTER note TYPE text USING upper(note)"),
        (PLAIN, "ALTER TABLE t ADD COLUMN more text DEFAULT 'x'"),
        (PLAIN, f"ALTER TABLE t {SWAP}"),
        (VIRTUAL, "ALTER TABLE t ALTER note SET EXPRESSION AS ('b')"),
        (PLAIN, "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t"),
        (PLAIN, "CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s; ALTER TABLE s.t SET SCHEMA public"),
        (PLAIN, "VACUUM FULL t"),
        (PLAIN, "DROP TABLE t"),
        *(((*PARTED, *NEW[:2]), statement) for statement in CHANGES_OF_PARTITIONS),
        (PARTED, "ALTER TABLE t ALTER note TYPE text USING upper(note)"),
    ],
)
async def test_unreported_change_is_one_change(
    database: Database, table: Sequence[str], statement: str
) -> None:
    """A change of rows without an event is one change of the whole table, also between readers."""
    database.execute(*table)
    schema, watch = await schema_of(database), watched(settings_of(database))
    async with watch.reader(schema) as reader:
        await reader.assign(SPLIT, position=None)
        (before,) = await reader.read()
        database.execute(*statement.split("; "))
        change = await change_in(reader)
    async with watch.reader(schema) as reader:
        await reader.assign(SPLIT, position=10)
        (later,) = await reader.read()
    database.execute("CREATE TABLE IF NOT EXISTS t (id int)", "ALTER TABLE t ADD COLUMN last int")
    async with watch.reader(schema) as reader:
        await reader.assign(SPLIT, position=11)
        (last,) = await reader.read()

    assert (list(before.changes), list(later.changes)) == ([], [])
    assert "ALTER TABLE ran" in change.reason
    is_there = statement != "DROP TABLE t"
    assert (change.transaction_id > 0, len(last.changes)) == (is_there, is_there)


async def test_changelog_outlasts_the_database(database: Database) -> None:
    """The changelog of a plain table is read while the database is away, and compared after it."""
    database.execute(*PLAIN)
    schema = await schema_of(database)
    addresses = [NOWHERE]
    settings = replace(settings_of(database), dsn=NOWHERE, dsn_now=lambda: addresses[-1])
    async with watched(settings).reader(schema) as reader:
        await reader.assign(SPLIT, position=None)
        pieces = [piece for _ in range(3) for piece in await reader.read()]
        addresses.append(database.dsn())
        change = await change_in(reader)

    assert [(piece.position, list(piece.changes)) for piece in pieces] == [
        (1, []),
        (2, []),
        (3, []),
    ]
    assert change.transaction_id > 0


async def test_unreachable_partitions_end_the_reader(database: Database) -> None:
    """If the partitions cannot be read, the changelog is not read on."""
    database.execute(*PARTED)
    schema = await schema_of(database)
    async with watched(settings_of(database)).reader(schema) as reader:
        await reader.assign(SPLIT, position=None)
        await reader.read()
        database.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'sidelook' AND datname = current_database()"
        )
        failure = await end_of(reader)
    with pytest.raises(BackendError, match="nothing listens"):
        await watched(replace(settings_of(database), dsn=NOWHERE)).reader(schema).__aenter__()

    assert "the server" in failure.detail or "connection" in failure.detail
