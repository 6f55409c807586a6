"""Loads of partitioned tables, views, materialized views, queries and filtered tables."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.queries import CTID
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot, PostgresSnapshotSplit
from tests.integration.lookups.tables import schema_of
from tests.service.connectors.source_contract import ReadSplits, SourceCase, read_all, splits_of
from tools.processes.postgres_server import Database

ROWS = 5_000
PAGE_BYTES = 16 * 1024
FILLED = f"SELECT i, 'name ' || i AS name FROM generate_series(1, {ROWS}) AS i"
PARTS = "PARTITION OF parted FOR VALUES FROM"
STATEMENTS = (
    "CREATE TABLE parted (i int, name text) PARTITION BY RANGE (i)",
    f"CREATE TABLE low {PARTS} (0) TO (1000)",
    f"CREATE TABLE high {PARTS} (1000) TO (10000) PARTITION BY HASH (i)",
    "CREATE TABLE even PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE odd PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    f"INSERT INTO parted {FILLED}",
    f"CREATE TABLE t AS {FILLED}",
    "CREATE MATERIALIZED VIEW kept AS TABLE t",
    "CREATE VIEW shown AS SELECT i, name FROM t WHERE i % 2 = 0",
)
INDEXED = "ALTER TABLE parted ADD PRIMARY KEY (i)"


@pytest.fixture
def relations(database: Database) -> Database:
    """A database with relations of several pages."""
    database.execute(*STATEMENTS)
    return database


async def loaded(settings: PostgresSettings) -> tuple[Sequence[Any], ReadSplits]:
    """The splits of the relation, and what was read."""
    schema = await schema_of(settings)
    case = SourceCase(PostgresSnapshot(settings, page_bytes=PAGE_BYTES), schema)
    async with splits_of(case) as splits:
        return splits, await read_all(case, splits)


def rows_of(read: ReadSplits) -> list[Any]:
    """The rows with their keys, sorted."""
    changes = [change for each in read.changes.values() for change in each]
    return sorted(((*key.values(), *row.values()) for key, _, row, _ in changes), key=repr)


@pytest.mark.parametrize(
    ("table", "more", "statement", "rows", "ranges"),
    [
        ("parted", {}, INDEXED, "TABLE parted", "keys"),
        ("parted", {}, "SELECT", "TABLE parted", "stream"),
        ("parted", {"where": "i > 900"}, INDEXED, "SELECT * FROM parted WHERE i > 900", "keys"),
        ("kept", {}, "CREATE INDEX ON kept (i)", "TABLE kept", "keys"),
        ("kept", {}, "SELECT", "TABLE kept", "places"),
        ("kept", {}, "CREATE INDEX ON kept (name, i)", "TABLE kept", "places"),
        (
            "t",
            {"where": "mod(i, 3) = 0"},
            "SELECT",
            "SELECT * FROM t WHERE mod(i, 3) = 0",
            "places",
        ),
        ("shown", {}, "SELECT", "TABLE shown", "stream"),
        ("shown", {"where": "i < 99"}, "SELECT", "SELECT * FROM shown WHERE i < 99", "stream"),
        ("q", {"query": f"{FILLED} -- all"}, "SELECT", "TABLE t", "stream"),
        ("q", {"query": "SELECT i, name FROM t WHERE false"}, "SELECT", "", "stream"),
    ],
)
async def test_each_relation_is_loaded_once(
    relations: Database, table: str, more: dict[str, Any], statement: str, *, rows: str, ranges: str
) -> None:
    """Each kind of relation is loaded by ranges of keys or of places, or as one stream."""
    relations.execute(statement)

    splits, read = await loaded(PostgresSettings(relations.dsn(), table, ("i",), **more))

    assert rows_of(read) == (sorted(relations.query(rows), key=repr) if rows else [])
    first = splits[0]
    assert isinstance(first, PostgresSnapshotSplit)
    columns = first.snapshot.range_columns
    assert ("stream" if not columns else "places" if columns == (CTID,) else "keys") == ranges
    if ranges != "stream":
        assert sum(split.page_count for split in splits) > 2


@pytest.mark.real_path
async def test_stream_has_pages_of_one_moment(relations: Database) -> None:
    """A stream arrives in several pages; rows that change meanwhile have their former values."""
    settings = PostgresSettings(relations.dsn(), "q", ("i",), query="SELECT i, name FROM t")
    schema = await schema_of(settings)
    case = SourceCase(PostgresSnapshot(settings, page_bytes=PAGE_BYTES), schema)
    async with splits_of(case) as splits:
        relations.execute("UPDATE t SET name = 'new'", "DELETE FROM t WHERE i < 99")
        read = await read_all(case, splits)
    (pieces,) = read.pieces.values()

    assert len([piece for piece in pieces if piece.changes]) > 1
    assert rows_of(read) == sorted(((i, f"name {i}") for i in range(1, ROWS + 1)), key=repr)


@pytest.mark.parametrize("table", ["t", "shown", "parted", "kept"])
async def test_large_rows_are_loaded_without_values(relations: Database, table: str) -> None:
    """A row that exceeds the limit is known to exist, as one whose value does not fit."""
    large = f"SELECT i, repeat('x', 70000) FROM generate_series(2, {ROWS}, 1000) i"
    relations.execute(
        f"UPDATE t SET name = q.x FROM ({large}) AS q (i, x) WHERE t.i = q.i",
        f"UPDATE parted SET name = q.x FROM ({large}) AS q (i, x) WHERE parted.i = q.i",
        "REFRESH MATERIALIZED VIEW kept",
        "CREATE INDEX ON t (i)",
    )
    settings = PostgresSettings(relations.dsn(), table, ("i",), row_bytes=65_536)

    _, read = await loaded(settings)

    changes = [change for each in read.changes.values() for change in each]
    holes = sorted(key["i"] for key, _, row, _ in changes if row is None)
    assert holes == [2, 1002, 2002, 3002, 4002]
    assert len(changes) == (ROWS // 2 if table == "shown" else ROWS)


async def test_interrupted_stream_is_not_continued(relations: Database) -> None:
    """A stream whose connection was lost fails the load, because its order may differ."""
    settings = PostgresSettings(relations.dsn(), "shown", ("i",))
    schema = await schema_of(settings)
    source = PostgresSnapshot(settings)
    async with source.enumerator(schema) as enumerator:
        (split,) = await enumerator.discover()
        async with source.reader(schema) as reader:
            await reader.assign(split, position=0)
            while not [piece for piece in await reader.read() if piece.position]:
                pass
        async with source.reader(schema) as reader:
            with pytest.raises(BackendError, match="starts again with the next load"):
                await reader.assign(split, position=1)


async def test_refresh_of_a_view_waits_for_its_load(relations: Database) -> None:
    """A materialized view keeps its rows until its load ends."""
    settings = PostgresSettings(relations.dsn(), "kept", ("i",))
    schema = await schema_of(settings)
    async with PostgresSnapshot(settings, page_bytes=PAGE_BYTES).enumerator(schema) as enumerator:
        await enumerator.discover()
        with psycopg.connect(relations.dsn(), autocommit=True) as session:
            session.execute("SET lock_timeout = '10ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                session.execute("REFRESH MATERIALIZED VIEW kept")
    relations.execute("REFRESH MATERIALIZED VIEW kept")


async def test_rows_without_key_are_left_out(relations: Database) -> None:
    """A stream leaves rows with NULL in the key out, as lookups cannot find them."""
    query = "SELECT nullif(i, 7) AS i, name FROM t WHERE i < 9"

    _, read = await loaded(replace(PostgresSettings(relations.dsn(), "q", ("i",)), query=query))

    assert len(rows_of(read)) == 7


@pytest.mark.parametrize("table", ["t", "shown"])
async def test_filter_that_fails_is_no_fault_of_a_key(relations: Database, table: str) -> None:
    """A load whose filter fails for a row names the fault and the remedy."""
    settings = PostgresSettings(relations.dsn(), table, ("i",), where="1 / (i - 1000) < 2")
    with pytest.raises(BackendError) as caught:
        await loaded(settings)

    assert caught.value.code is ErrorCode.BACKEND_REJECTED
    assert "a row cannot be read (DivisionByZeroError, SQLSTATE 22012)" in caught.value.detail
    assert "source.where" in caught.value.detail
