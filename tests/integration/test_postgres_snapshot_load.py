"""A table is read as of one moment, in ranges, whatever it looks like and whatever happens."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.snapshot_queries import CTID, PostgresSnapshotSplit
from service.connectors.postgres.snapshot_source import PostgresSnapshot, PostgresSnapshotReader
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.integration.fault_proxy import FaultProxy
from tests.integration.pgbouncer import pgbouncer
from tests.service.connectors.source_contract import (
    ReadSplits,
    RepeatableSourceContract,
    SourceCase,
    read_all,
    read_on,
    splits_of,
)
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import Database, PostgresServer, running_standby

PATIENCE_S = 20.0
ROWS = 5_000
PAGE_BYTES = 16 * 1024
FILLED = f"SELECT i, 'name ' || i AS name FROM generate_series(1, {ROWS}) AS i"
# Ends all sessions of a load but the oldest, which is the enumerator's.
TERMINATE_READERS = """SELECT pg_terminate_backend(pid, 5000) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'sidelook load' AND datname = current_database()
    ORDER BY backend_start OFFSET 1) AS readers"""
TERMINATE_ALL = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = 'sidelook load' AND datname = current_database()"""

# {table: its key, whether ranges are those of its key, how it is made}
TABLES = {
    "number": (["i"], True, f"CREATE TABLE t AS {FILLED}; ALTER TABLE t ADD PRIMARY KEY (i)"),
    "text": (["name"], True, f"CREATE TABLE t AS {FILLED}; CREATE INDEX ON t (name)"),
    "uuid": (
        *(["id"], True),
        (
            "CREATE TABLE t AS SELECT gen_random_uuid() AS id, s.* FROM "
            f"({FILLED}) AS s; ALTER TABLE t ADD PRIMARY KEY (id)"
        ),
    ),
    "composite, in the index's order": (
        *(["name", "i"], True),
        (
            f"CREATE TABLE t AS SELECT s.*, i AS x FROM ({FILLED}) AS s;"
            "ALTER TABLE t ADD PRIMARY KEY (i, name)"
        ),
    ),
    "decimal, moment and truth": (
        *(["price", "at", "is_new"], True),
        (
            "CREATE TABLE t AS SELECT (i / 8.0)::numeric(12, 3) AS price, s.*,"
            f" timestamptz '2020-01-01' + i * interval '1 us' AS at, i % 2 = 0 AS is_new"
            f" FROM ({FILLED}) AS s; CREATE UNIQUE INDEX ON t (price, at, is_new)"
        ),
    ),
    "day and bytes": (
        *(["day", "bytes"], True),
        (
            "CREATE TABLE t AS SELECT date '1999-01-01' + i / 100 AS day,"
            f" decode(md5(i::text), 'hex') AS bytes, s.* FROM ({FILLED}) AS s;"
            "CREATE INDEX ON t (day, bytes)"
        ),
    ),
    "skewed": (
        *(["k"], True),
        (
            f"CREATE TABLE t AS SELECT CASE WHEN i % 10 < 8 THEN 7 ELSE i END AS k, s.*"
            f" FROM ({FILLED}) AS s; CREATE INDEX ON t (k)"
        ),
    ),
    "no index": (["i"], False, f"CREATE TABLE t AS {FILLED}"),
    "updated, no index": (
        *(["i"], False),
        (
            f"CREATE TABLE t AS {FILLED}; UPDATE t SET name = 'new' WHERE i % 3 = 0;"
            "DELETE FROM t WHERE i % 7 = 0"
        ),
    ),
    "long values": (
        *(["i"], True),
        (
            "CREATE TABLE t AS SELECT s.*, (SELECT string_agg(md5(i::text || n), '') FROM"
            f" generate_series(1, 200) AS n) AS long FROM ({FILLED}) AS s WHERE i < 100;"
            "ALTER TABLE t ADD PRIMARY KEY (i)"
        ),
    ),
}


@pytest.fixture
def numbers(database: Database) -> PostgresSettings:
    """A table of some pages."""
    database.execute(TABLES["number"][2])
    return PostgresSettings(database.dsn(), "t", ("i",))


async def case_of(settings: PostgresSettings, *, page_bytes: int = PAGE_BYTES) -> SourceCase:
    """The table as a source, described as it is now."""
    return SourceCase(PostgresSnapshot(settings, page_bytes=page_bytes), await described(settings))


async def described(settings: PostgresSettings) -> DimensionSchema:
    """The table's schema."""
    async with PostgresBackend(settings) as backend:
        return await backend.describe(timeout_s=PATIENCE_S)


async def loaded(case: SourceCase) -> tuple[list[PostgresSnapshotSplit], ReadSplits]:
    """All splits, and what was read of them."""
    async with splits_of(case) as splits:
        told = await read_all(case, splits)
    return [split for split in splits if isinstance(split, PostgresSnapshotSplit)], told


def rows_of(told: ReadSplits) -> list[Any]:
    """The rows that were told, without an order."""
    rows = [(key, row) for changes in told.changes.values() for key, _, row, _ in changes]
    return sorted(rows, key=repr)


def changes_of(told: ReadSplits) -> list[RowChanges]:
    """What was told, in columns."""
    pieces = [piece for each in told.pieces.values() for piece in each]
    changes = [change for piece in pieces for change in piece.changes]
    return [change for change in changes if isinstance(change, RowChanges)]


class TestContract(RepeatableSourceContract):
    """What every source does, over a real table of two splits of several pages each."""

    @pytest.fixture
    async def case(self, numbers: PostgresSettings) -> SourceCase:
        """The table."""
        return await case_of(numbers)


@pytest.mark.parametrize("name", list(TABLES))
async def test_each_row_is_told_once(name: str, database: Database) -> None:
    """Whatever the key, all rows come, none twice, just as a lookup would read them."""
    key, is_by_key, statements = TABLES[name]
    database.execute(*statements.split(";"))
    settings = PostgresSettings(database.dsn(), "t", tuple(key))

    splits, told = await loaded(await case_of(settings))

    assert rows_of(told) == await looked_up(settings, told)
    (count,) = database.query("SELECT count(*) FROM t")[0]
    assert len(rows_of(told)) == count
    assert (splits[0].snapshot.range_columns != (CTID,)) == is_by_key
    assert sum(split.page_count for split in splits) > 2


async def looked_up(settings: PostgresSettings, told: ReadSplits) -> list[Any]:
    """The rows that lookups find by the keys that were told, as `rows_of` has them."""
    keys = pa.concat_batches([change.keys for change in changes_of(told)])
    distinct = {repr(key): at for at, key in enumerate(keys.to_pylist())}
    asked = keys.take(pa.array(distinct.values(), pa.int64()))
    async with PostgresBackend(settings) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        fetched = await backend.fetch(asked, timeout_s=PATIENCE_S)
    keys_found = asked.take(pa.array(fetched.ordinals)).to_pylist()
    return sorted(zip(keys_found, fetched.rows.to_pylist(), strict=True), key=repr)


async def test_keys_with_nulls_are_left_out(database: Database) -> None:
    """A row that no lookup can ask for is not told: a NULL in the key, a moment without end."""
    database.execute(
        "CREATE TABLE t (a int, at timestamptz, x int)",
        "CREATE INDEX ON t (a, at)",
        """INSERT INTO t VALUES (1, '2020-01-01Z', 1), (NULL, '2020-01-01Z', 2), (3, NULL, 3),
           (4, 'infinity', 4), (NULL, NULL, 5)""",
    )
    settings = PostgresSettings(database.dsn(), "t", ("a", "at"))

    _, told = await loaded(await case_of(settings))

    assert [row for _, row in rows_of(told)] == [{"x": 1}]


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("former", ["", f"; INSERT INTO t {FILLED}; DELETE FROM t"])
async def test_empty_table_is_one_empty_split(database: Database, key: str, former: str) -> None:
    """There is a split to finish, also where there is no row, or is none any more."""
    database.execute(*f"CREATE TABLE t (i int {key}, name text){former}".split(";"))
    settings = PostgresSettings(database.dsn(), "t", ("i",))

    splits, told = await loaded(await case_of(settings))

    assert ([split.id for split in splits], rows_of(told)) == (["range 1"], [])
    assert told.pieces["range 1"][-1].is_finished


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Somebody moves amounts between accounts meanwhile, and replaces rows by others."""
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
    """All rows, by several readers at a time."""
    told = ReadSplits(is_bounded=True)

    def take(piece: SplitPiece) -> None:
        told.add([piece])

    settings = CoordinatorSettings("t")
    coordinator = SourceCoordinator(case.source, case.schema, take=take, settings=settings)
    async with asyncio.timeout(PATIENCE_S):
        await coordinator.run()
    return told


async def test_splits_show_one_moment(database: Database) -> None:
    """Ranges that are read at the same time by several sessions show no half of a transaction."""
    database.execute(
        "CREATE TABLE t (i int PRIMARY KEY, x int)",
        f"INSERT INTO t SELECT i, 0 FROM generate_series(1, {ROWS}) AS i",
    )
    settings = PostgresSettings(database.dsn(), "t", ("i",))
    case = await case_of(settings, page_bytes=4096)

    with writing(database):
        for _ in range(5):
            told = await read_in_parallel(case)
            rows = rows_of(told)
            assert sum(row["x"] for _, row in rows) == 0
            assert len({key["i"] for key, _ in rows}) == len(rows)
            assert len([key for key, _ in rows if key["i"] > 0]) == ROWS
            assert len(rows) <= ROWS + 1


async def test_picture_says_what_it_saw(numbers: PostgresSettings, database: Database) -> None:
    """Pieces know which transactions the picture shows: those that had ended, and no other."""
    with psycopg.connect(database.dsn()) as other:
        under_way = other.execute(b"SELECT pg_current_xact_id()::text::int8").fetchone()
        ((ended,),) = database.query("SELECT pg_current_xact_id()::text::int8")
        _, told = await loaded(await case_of(numbers))
    ((later,),) = database.query("SELECT pg_current_xact_id()::text::int8")

    assert under_way is not None
    pieces = [piece for each in told.pieces.values() for piece in each]
    ids = np.array([ended, under_way[0], later], np.uint32)
    for snapshot in [piece.snapshot for piece in pieces if piece.changes]:
        assert snapshot is not None
        assert snapshot.sees(ids).tolist() == [True, False, False]
        assert not snapshot.is_of_standby


@asynccontextmanager
async def first_split(settings: PostgresSettings) -> AsyncIterator[PostgresSnapshotSplit]:
    """The first split of the table, while its enumerator is open."""
    async with splits_of(await case_of(settings)) as splits:
        assert isinstance(splits[0], PostgresSnapshotSplit)
        yield splits[0]


async def test_reader_goes_on_after_a_loss(numbers: PostgresSettings, database: Database) -> None:
    """When its session is killed in the middle another one reads on, at the same moment."""
    async with first_split(numbers) as split:
        told, whole = ReadSplits(is_bounded=True), ReadSplits(is_bounded=True)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=None)
            told.add(await reader.read())
            database.execute("UPDATE t SET name = 'later'", TERMINATE_READERS)
            with pytest.raises(BackendError) as caught:
                await read_on(reader, {split.id}, told)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=told.pieces[split.id][-1].position)
            await read_on(reader, {split.id}, told)
        async with PostgresSnapshotReader(numbers) as reader:
            await reader.assign(split, position=None)
            await read_on(reader, {split.id}, whole)

    assert caught.value.is_retryable
    assert rows_of(told) == rows_of(whole)
    assert {row["name"][:5] for _, row in rows_of(told)} == {"name "}


async def test_lost_snapshot_fails_for_good(numbers: PostgresSettings, database: Database) -> None:
    """When the session that keeps it is gone no new reader can see it, and trying is of no use."""
    async with first_split(numbers) as split:
        database.execute(TERMINATE_ALL)
        async with PostgresSnapshotReader(numbers) as reader:
            with pytest.raises(BackendError) as caught:
                await reader.assign(split, position=None)

    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert not caught.value.is_retryable


async def test_changed_table_is_not_read(numbers: PostgresSettings, database: Database) -> None:
    """A table that is not what was described fails before a row of it is read."""
    case = await case_of(numbers)
    database.execute("ALTER TABLE t ALTER COLUMN name TYPE bytea USING name::bytea")

    async with case.source.enumerator(case.schema) as enumerator:
        with pytest.raises(BackendError) as caught:
            await enumerator.discover()

    assert caught.value.code is ErrorCode.SCHEMA_CHANGED


async def test_slow_page_is_a_sign_of_life(
    numbers: PostgresSettings, database: Database, postgres_server: PostgresServer
) -> None:
    """While a page does not come reads are over in time, and nothing is lost when it does."""
    async with first_split(numbers) as split, FaultProxy(postgres_server.socket_path) as proxy:
        slow = replace(numbers, dsn=proxy.dsn(database.name))
        async with PostgresSnapshotReader(slow) as reader:
            await reader.assign(split, position=None)
            proxy.hold_replies()
            (piece,) = await reader.read()
            proxy.release()
            await read_on(reader, {split.id}, told := ReadSplits(is_bounded=True))

    assert piece == SplitPiece(split.id, 0, total=split.total)
    assert len(rows_of(told)) > 0


async def test_pooled_transactions_are_enough(
    numbers: PostgresSettings, database: Database, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Behind a PgBouncer the same rows come: nothing of a session is needed."""
    try:
        with pgbouncer(tmp_path, database, system_user=postgres_server.system_user) as bouncer:
            pooled = replace(numbers, dsn=bouncer.dsn, pgbouncer=True)
            case = SourceCase(PostgresSnapshot(pooled, page_bytes=2**20), await described(numbers))
            _, told = await loaded(case)
    except ToolUnavailable as error:
        pytest.skip(str(error))

    assert len(rows_of(told)) == ROWS


@pytest.mark.full
async def test_standby_is_read_as_well(
    numbers: PostgresSettings, database: Database, postgres_server: PostgresServer
) -> None:
    """A standby's picture is as whole, and says that it is one."""
    with running_standby(postgres_server) as folder:
        standby = replace(numbers, dsn=replace(database, socket_folder=folder).dsn())
        _, told = await loaded(await case_of(standby))

    assert len(rows_of(told)) == ROWS
    pieces = [piece for each in told.pieces.values() for piece in each if piece.changes]
    assert all(piece.snapshot is not None and piece.snapshot.is_of_standby for piece in pieces)
