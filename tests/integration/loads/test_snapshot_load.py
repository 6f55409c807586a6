"""Loads of PostgreSQL tables: ranges of one snapshot, read by several sessions."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.queries import CTID, REPLY_BYTES
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import (
    PostgresSnapshot,
    PostgresSnapshotReader,
    PostgresSnapshotSplit,
)
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.integration.lookups.tables import PATIENCE_S, described, schema_of
from tests.integration.pgbouncer import PgBouncer
from tests.service.connectors.source_contract import (
    ReadSplits,
    RepeatableSourceContract,
    SourceCase,
    read_all,
    read_on,
    splits_of,
)
from tools.processes.postgres_server import Database, PostgresServer, running_standby

ROWS = 5_000
PAGE_BYTES = 16 * 1024
FILLED = f"SELECT i, 'name ' || i AS name FROM generate_series(1, {ROWS}) AS i"
# The oldest session is that of the enumerator.
TERMINATE_READERS = """SELECT pg_terminate_backend(pid, 5000) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'sidelook load' AND datname = current_database()
    ORDER BY backend_start OFFSET 1) AS readers"""
TERMINATE_ALL = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = 'sidelook load' AND datname = current_database()"""

# {table: (key, columns, statement that makes the index)}
TABLES = {
    "number": ("i", "i, name", "ALTER TABLE t ADD PRIMARY KEY (i)"),
    "text": ("name", "i, name", "CREATE INDEX ON t (name)"),
    "uuid": ("id", "gen_random_uuid() AS id, s.*", "ALTER TABLE t ADD PRIMARY KEY (id)"),
    "composite, in the order of the index": (
        *("name, i", "s.*, i AS x"),
        "ALTER TABLE t ADD PRIMARY KEY (i, name)",
    ),
    "decimal, moment and boolean": (
        "price, at, is_new",
        """(i / 8.0)::numeric(12, 3) AS price, s.*, i % 2 = 0 AS is_new,
        timestamptz '2020-01-01' + i * interval '1 us' AS at""",
        "CREATE UNIQUE INDEX ON t (price, at, is_new)",
    ),
    "day and bytes": (
        "day, bytes",
        "date '1999-01-01' + i / 100 AS day, decode(md5(i::text), 'hex') AS bytes, s.*",
        "CREATE INDEX ON t (day, bytes)",
    ),
    "skewed": ("k", "CASE WHEN i % 10 < 8 THEN 7 ELSE i END AS k, s.*", "CREATE INDEX ON t (k)"),
    "long values": (
        "i",
        "s.*, repeat(md5(i::text), 200) AS long",
        "DELETE FROM t WHERE i >= 100; ALTER TABLE t ADD PRIMARY KEY (i)",
    ),
    "no index": ("i", "i, name", "SELECT"),
    "updated, no index": (
        *("i", "i, name"),
        "UPDATE t SET name = 'new' WHERE i % 3 = 0; DELETE FROM t WHERE i % 7 = 0",
    ),
}


def put(database: Database, name: str) -> PostgresSettings:
    """Create the table of this name; return its settings."""
    key, columns, index = TABLES[name]
    database.execute(f"CREATE TABLE t AS SELECT {columns} FROM ({FILLED}) AS s", *index.split(";"))
    return PostgresSettings(database.dsn(), "t", tuple(key.split(", ")))


@pytest.fixture
def numbers(database: Database) -> PostgresSettings:
    """A table of several pages."""
    return put(database, "number")


async def case_of(settings: PostgresSettings, *, page_bytes: int = PAGE_BYTES) -> SourceCase:
    """The table as a source with its present schema."""
    return SourceCase(PostgresSnapshot(settings, page_bytes=page_bytes), await schema_of(settings))


async def loaded(case: SourceCase) -> tuple[list[PostgresSnapshotSplit], ReadSplits]:
    """All splits and their changes."""
    async with splits_of(case) as splits:
        read = await read_all(case, splits)
    return [split for split in splits if isinstance(split, PostgresSnapshotSplit)], read


def rows_of(read: ReadSplits) -> list[Any]:
    """The rows, sorted."""
    rows = [(key, row) for changes in read.changes.values() for key, _, row, _ in changes]
    return sorted(rows, key=repr)


def changes_of(read: ReadSplits) -> list[RowChanges]:
    """The changes of rows."""
    pieces = [piece for each in read.pieces.values() for piece in each]
    changes = [change for piece in pieces for change in piece.changes]
    return [change for change in changes if isinstance(change, RowChanges)]


class TestContract(RepeatableSourceContract):
    """The contract of sources, over two splits of several pages."""

    @pytest.fixture
    async def case(self, numbers: PostgresSettings) -> SourceCase:
        """A table of several pages."""
        return await case_of(numbers)


async def test_labels_ignore_casts_to_text(database: Database) -> None:
    """Lookups and loads have the labels of an enum, whatever a cast to text makes of them."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('happy', 'sad')",
        "CREATE DOMAIN feeling AS mood",
        "CREATE TABLE t (id mood PRIMARY KEY, other feeling)",
        "INSERT INTO t VALUES ('happy', 'sad'), ('sad', NULL)",
        "CREATE FUNCTION loud(mood) RETURNS text IMMUTABLE LANGUAGE sql"
        " RETURN upper(enum_out($1)::text)",
        "CREATE CAST (mood AS text) WITH FUNCTION loud(mood)",
    )
    settings = PostgresSettings(database.dsn(), "t", ("id",))
    async with described(settings) as backend:
        keys = pa.record_batch({"id": ["happy", "HAPPY", "sad"]})
        fetched = await backend.fetch(keys, timeout_s=PATIENCE_S)
    _, read = await loaded(await case_of(settings))

    assert fetched.rows.to_pylist() == [{"other": "sad"}, {"other": None}]
    assert fetched.ordinals.tolist() == [0, 2]
    assert rows_of(read) == [
        ({"id": "happy"}, {"other": "sad"}),
        ({"id": "sad"}, {"other": None}),
    ]


@pytest.mark.parametrize("name", list(TABLES))
async def test_each_row_is_loaded_once(name: str, database: Database) -> None:
    """For each kind of key, a load returns every row once, as a lookup returns it."""
    settings = put(database, name)

    splits, read = await loaded(await case_of(settings))

    assert rows_of(read) == await looked_up(settings, read)
    (count,) = database.query("SELECT count(*) FROM t")[0]
    assert len(rows_of(read)) == count
    assert (splits[0].snapshot.range_columns != (CTID,)) == ("no index" not in name)
    assert sum(split.page_count for split in splits) > 2


async def looked_up(settings: PostgresSettings, read: ReadSplits) -> list[Any]:
    """The rows that lookups by the loaded keys find, sorted."""
    keys = pa.concat_batches([change.keys for change in changes_of(read)])
    distinct = {repr(key): at for at, key in enumerate(keys.to_pylist())}
    wanted = keys.take(pa.array(distinct.values(), pa.int64()))
    async with described(replace(settings, has_several_rows=True)) as backend:
        fetched = await backend.fetch(wanted, timeout_s=PATIENCE_S)
    keys_found = wanted.take(pa.array(fetched.ordinals)).to_pylist()
    return sorted(zip(keys_found, fetched.rows.to_pylist(), strict=True), key=repr)


@pytest.mark.parametrize(
    ("table", "surplus"), [("indexed", 2), ("t", 0), ("shown", 0)], ids=["key", "place", "stream"]
)
async def test_pages_are_bounded_as_they_are_sent(
    database: Database, table: str, surplus: int
) -> None:
    """Rows that take few bytes on disk are loaded in more pages; a key is never divided."""
    wide = "CASE WHEN i < 90 THEN ('1e' || 120000)::numeric ELSE 1.5 END AS digits"
    database.execute(
        f"CREATE TABLE t AS SELECT i, repeat('x', 200000) AS name, {wide}"
        " FROM generate_series(1, 100) i",
        "INSERT INTO t SELECT 7, repeat('y', 3000000), 1 FROM generate_series(1, 5)",
        "CREATE VIEW shown AS SELECT * FROM t",
        "CREATE TABLE indexed AS SELECT * FROM t",
        "CREATE INDEX ON indexed (i)",
        "ANALYZE",
    )

    _, read = await loaded(await case_of(PostgresSettings(database.dsn(), table, ("i",))))

    pages = changes_of(read)
    assert len(pages) > 4
    assert max(page.rows.nbytes for page in pages) <= REPLY_BYTES
    assert sum(page.keys.num_rows for page in pages) == 105
    assert sum(int((~page.has_row).sum()) for page in pages) == surplus


async def test_keys_with_nulls_are_left_out(database: Database) -> None:
    """Rows with NULL or infinity in their key, which no lookup can match, are left out (H12)."""
    database.execute(
        "CREATE TABLE t (a int, at timestamptz, x int)",
        "CREATE INDEX ON t (a, at)",
        """INSERT INTO t VALUES (1, '2020-01-01Z', 1), (NULL, '2020-01-01Z', 2), (3, NULL, 3),
           (4, 'infinity', 4), (NULL, NULL, 5)""",
    )
    settings = PostgresSettings(database.dsn(), "t", ("a", "at"))

    _, read = await loaded(await case_of(settings))

    assert [row for _, row in rows_of(read)] == [{"x": 1}]


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("former", ["", f"; INSERT INTO t {FILLED}; DELETE FROM t"])
async def test_empty_table_is_one_empty_split(database: Database, key: str, former: str) -> None:
    """A table that is empty, or has only deleted rows, has one split without rows."""
    database.execute(*f"CREATE TABLE t (i int {key}, name text){former}".split(";"))
    settings = PostgresSettings(database.dsn(), "t", ("i",))

    splits, read = await loaded(await case_of(settings))

    assert ([split.id for split in splits], rows_of(read)) == (["range 1"], [])
    assert read.pieces["range 1"][-1].is_finished


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Transactions that keep the sum of `x` at 0 and the number of rows, until the block ends."""
    is_over = threading.Event()

    def write() -> None:
        with psycopg.connect(database.dsn()) as connection:
            number = 0
            while not is_over.is_set():
                number += 1
                first, second = number * 7919 % ROWS + 1, number * 104_729 % ROWS + 1
                if first != second:
                    change = b"UPDATE t SET x = x + %s WHERE i = %s"
                    connection.execute(change, (number, first))
                    connection.execute(change, (-number, second))
                connection.execute(b"DELETE FROM t WHERE i = %s", (-number + 1,))
                connection.execute(b"INSERT INTO t VALUES (%s, 0)", (-number,))
                connection.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


async def read_in_parallel(case: SourceCase) -> ReadSplits:
    """All rows, read by several readers concurrently."""
    read = ReadSplits(is_bounded=True)

    def take(piece: SplitPiece) -> None:
        read.add([piece])

    settings = CoordinatorSettings("t")
    coordinator = SourceCoordinator(case.source, case.schema, take=take, settings=settings)
    async with asyncio.timeout(PATIENCE_S):
        await coordinator.run()
    return read


async def test_splits_share_one_snapshot(database: Database) -> None:
    """Ranges read by several sessions contain each transaction whole or not at all."""
    database.execute(
        "CREATE TABLE t (i int PRIMARY KEY, x int)",
        f"INSERT INTO t SELECT i, 0 FROM generate_series(1, {ROWS}) AS i",
    )
    settings = PostgresSettings(database.dsn(), "t", ("i",))
    case = await case_of(settings, page_bytes=4096)

    with writing(database):
        for _ in range(5):
            read = await read_in_parallel(case)
            rows = rows_of(read)
            assert sum(row["x"] for _, row in rows) == 0
            assert len({key["i"] for key, _ in rows}) == len(rows)
            assert len([key for key, _ in rows if key["i"] > 0]) == ROWS
            assert len(rows) <= ROWS + 1


async def test_pieces_have_their_snapshot(numbers: PostgresSettings, database: Database) -> None:
    """The snapshot of a piece includes exactly the transactions that had ended."""
    with psycopg.connect(database.dsn()) as other:
        in_progress = other.execute(b"SELECT pg_current_xact_id()::text::int8").fetchone()
        ((ended,),) = database.query("SELECT pg_current_xact_id()::text::int8")
        _, read = await loaded(await case_of(numbers))
    ((later,),) = database.query("SELECT pg_current_xact_id()::text::int8")

    assert in_progress is not None
    pieces = [piece for each in read.pieces.values() for piece in each]
    ids = np.array([ended, in_progress[0], later], np.uint32)
    for snapshot in [piece.snapshot for piece in pieces if piece.changes]:
        assert snapshot is not None
        assert snapshot.sees(ids).tolist() == [True, False, False]
        assert not snapshot.is_of_standby


@asynccontextmanager
async def first_split(settings: PostgresSettings) -> AsyncIterator[PostgresSnapshotSplit]:
    """The first split of the table; its enumerator stays open."""
    async with splits_of(await case_of(settings)) as splits:
        assert isinstance(splits[0], PostgresSnapshotSplit)
        yield splits[0]


async def test_lost_reader_is_continued(numbers: PostgresSettings, database: Database) -> None:
    """After a lost session, another reader continues at its position in the same snapshot."""
    async with first_split(numbers) as split:
        read, whole = ReadSplits(is_bounded=True), ReadSplits(is_bounded=True)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=None)
            read.add(await reader.read())
            database.execute("UPDATE t SET name = 'later'", TERMINATE_READERS)
            with pytest.raises(BackendError) as caught:
                await read_on(reader, {split.id}, read)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=read.pieces[split.id][-1].position)
            await read_on(reader, {split.id}, read)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=None)
            await read_on(reader, {split.id}, whole)

    assert caught.value.is_retryable
    assert rows_of(read) == rows_of(whole)
    assert {row["name"][:5] for _, row in rows_of(read)} == {"name "}


async def test_lost_snapshot_is_not_retryable(
    numbers: PostgresSettings, database: Database
) -> None:
    """If the session that exports the snapshot ends, new readers fail for good."""
    async with first_split(numbers) as split:
        database.execute(TERMINATE_ALL)
        async with PostgresSnapshotReader(numbers) as reader:
            with pytest.raises(BackendError) as caught:
                await reader.assign(split, position=None)

    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert not caught.value.is_retryable


async def test_load_passes_a_pooler(numbers: PostgresSettings, bouncer: PgBouncer) -> None:
    """Through a PgBouncer in transaction mode, a load returns all rows (D20)."""
    pooled = replace(numbers, dsn=bouncer.dsn, pgbouncer=True)

    _, read = await loaded(await case_of(pooled, page_bytes=2**20))

    assert len(rows_of(read)) == ROWS


async def test_standby_can_be_loaded(
    numbers: PostgresSettings, database: Database, postgres_server: PostgresServer
) -> None:
    """A load from a standby is complete, and its snapshots say that it is a standby."""
    with running_standby(postgres_server) as folder:
        standby = replace(numbers, dsn=replace(database, socket_folder=folder).dsn())
        _, read = await loaded(await case_of(standby))

    assert len(rows_of(read)) == ROWS
    pieces = [piece for each in read.pieces.values() for piece in each if piece.changes]
    assert all(piece.snapshot is not None and piece.snapshot.is_of_standby for piece in pieces)
