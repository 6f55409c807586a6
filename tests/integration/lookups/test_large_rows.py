"""Rows beyond `limits.row_bytes`, and answers beyond their bytes, of a real PostgreSQL."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.errors import ErrorCode
from lookup_core.settings import BatchSettings, Match
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.several_rows import RowMatch
from tests.integration.lookups.tables import PATIENCE_S, described, serving
from tests.service.engine import running
from tools.processes.postgres_server import Database, PostgresServer

ROW_BYTES = 100_000
MANY = 3 * ROW_BYTES
TEXT = f"repeat('x', {MANY})"  # some kilobytes where it is stored
RANDOM = f"(SELECT string_agg(md5(i::text), '') FROM generate_series(1, {MANY // 32}) i)"
COLUMNS = {  # {column: (type, a large value, a small value)}
    "words": ("text", TEXT, "'w'"),
    "noise": ("varchar", RANDOM, "'w'"),
    "padded": ("char(3)", None, "'w'"),
    "bytes": ("bytea", f"{TEXT}::bytea", "'w'::bytea"),
    "document": ("json", f"to_json({TEXT})", "'{}'::json"),
    "tree": ("jsonb", f"to_jsonb({TEXT})", "'{}'::jsonb"),
    "deep": ("jsonb", f"jsonb_build_object('a', {RANDOM})", '\'{"a": "b"}\'::jsonb'),
    "texts": ("text[]", f"array_fill('x'::text, ARRAY[{MANY}])", "'{a}'::text[]"),
    "numbers": ("int[]", f"array_fill(1, ARRAY[{MANY}])", "'{1}'::int[]"),
    "pair": ("pair", f"(1, {TEXT})::pair", "(1, 'w')::pair"),
    "parts": ("pair", f"(1, {TEXT})::pair", "(1, 'w')::pair"),
    "digits": ("numeric", "('1e' || 120000)::numeric", "1.5"),
    "xml_text": ("marked", f"{TEXT}::marked", "'w'::marked"),
    "nothing": ("text", None, "NULL"),
}
TYPES = {
    "deep": parsed_type("struct<a string>"),
    "parts": parsed_type("struct<number int, word string>"),
}
LARGE = [name for name, (_, large, _) in COLUMNS.items() if large is not None]


@pytest.fixture(scope="module")
def stored(postgres_server: PostgresServer) -> Database:
    """A table `t` with a small row 1, a row for each large value, and a small row at the end."""
    database = postgres_server.new_database()
    definitions = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    small = ", ".join(value for _, _, value in COLUMNS.values())
    database.execute(
        "CREATE TYPE pair AS (number int, word text)",
        "CREATE DOMAIN marked AS text",
        f"CREATE TABLE t (id int8 PRIMARY KEY, {definitions})",
        f"INSERT INTO t SELECT i, {small} FROM generate_series(1, {len(LARGE) + 2}) i",
        *(
            f"UPDATE t SET {name} = {COLUMNS[name][1]} WHERE id = {number}"
            for number, name in enumerate(LARGE, 2)
        ),
        "CREATE VIEW shown AS SELECT * FROM t",
        "CREATE TABLE heap AS TABLE t",
    )
    return database


def reader(database: Database, table: str = "t", **more: Any) -> PostgresSettings:  # noqa: ANN401
    """Settings of a table, with the limit of these tests."""
    types = {name: kind for name, kind in TYPES.items() if name in more.get("columns", TYPES)}
    return PostgresSettings(
        database.dsn(), table, ("id",), **{"row_bytes": ROW_BYTES, "types": types, **more}
    )


def keys(first: int, last: int) -> pa.RecordBatch:
    """These keys and all between them."""
    return pa.record_batch({"id": pa.array(range(first, last + 1), pa.int64())})


def codes(fetched: FetchedRows) -> dict[int, ErrorCode]:
    """The error of each key, by its place among the keys."""
    return {at: each.code for each in fetched.unfit for at in each.ordinals.tolist()}


@pytest.mark.parametrize(
    ("table", "is_followed"), [("t", False), ("t", True), ("shown", False), ("heap", True)]
)
async def test_large_rows_are_left_out(
    stored: Database,
    table: str,
    is_followed: bool,  # noqa: FBT001  of the parametrization
) -> None:
    """A large value of any type, compressed or not, fails its own key only."""
    end = len(LARGE) + 2

    async with described(reader(stored, table, is_followed=is_followed)) as backend:
        few = await backend.fetch(keys(1, end), timeout_s=PATIENCE_S)
        many = await backend.fetch(keys(1, 1_000), timeout_s=PATIENCE_S)  # as blocks

    expected = dict.fromkeys(range(1, end - 1), ErrorCode.ROW_TOO_LARGE)
    for fetched in (few, many):
        assert codes(fetched) == expected
        assert sorted(fetched.ordinals.tolist()) == [0, end - 1]
        assert fetched.rows["deep"].to_pylist() == [{"a": "b"}] * 2
        assert not fetched.deferred.size
    assert "(0.0953674 MiB), most in words, noise, bytes, document, tree," in few.unfit[0].detail
    assert "texts (its bytes count 8 times)" in few.unfit[0].detail


@pytest.mark.parametrize("name", LARGE)
async def test_large_values_fit_a_larger_limit(stored: Database, name: str) -> None:
    """The same values are exact if the limit allows them, and if another column is read."""
    number = LARGE.index(name) + 2
    row = keys(number, number)

    async with described(reader(stored, columns=(name,), row_bytes=80 * MANY)) as backend:
        found = await backend.fetch(row, timeout_s=PATIENCE_S)
    async with described(reader(stored, columns=("nothing", "padded"))) as backend:
        others = await backend.fetch(row, timeout_s=PATIENCE_S)

    assert (codes(found), found.rows.num_rows) == ({}, 1)
    assert found.rows.nbytes > ROW_BYTES
    assert others.rows.to_pylist() == [{"nothing": None, "padded": "w  "}]


async def test_values_are_large_by_their_stored_bytes(stored: Database) -> None:
    """A converted value that takes eight times the limit in the table is not converted at all."""
    number = LARGE.index("deep") + 2
    limits = {"deep": MANY // 9, "texts": MANY // 9}

    for name, row_bytes in limits.items():
        settings = reader(stored, "heap", columns=(name,), row_bytes=row_bytes)
        async with described(settings) as backend:
            found = await backend.fetch(keys(number, number), timeout_s=PATIENCE_S)
        assert codes(found) == ({0: ErrorCode.ROW_TOO_LARGE} if name == "deep" else {})


async def test_answers_beyond_their_bytes_are_deferred(database: Database) -> None:
    """An answer ends after its bytes; the other keys are known to have rows."""
    database.execute(
        "CREATE TABLE t (id int8 PRIMARY KEY, name text)",
        "INSERT INTO t SELECT i, repeat(i::text, 4000000) FROM generate_series(1, 6) i",
    )
    settings = PostgresSettings(database.dsn(), "t", ("id",))

    async with described(settings) as backend:
        fetched = await backend.fetch(keys(0, 7), timeout_s=PATIENCE_S)
    async with described(replace(settings, row_bytes=13_000_000)) as backend:
        more = await backend.fetch(keys(0, 7), timeout_s=PATIENCE_S)

    assert (fetched.ordinals.tolist(), fetched.deferred.tolist()) == ([1, 2], [3, 4, 5, 6])
    assert (more.ordinals.tolist(), more.deferred.tolist()) == ([1, 2, 3], [4, 5, 6])
    assert codes(fetched) == codes(more) == {}


async def test_single_rows_are_never_deferred(database: Database) -> None:
    """After small rows, each key has a share of an answer; a key alone has all of it."""
    database.execute(
        "CREATE TABLE t (id int8 PRIMARY KEY, name text)",
        "INSERT INTO t SELECT i, 'small' FROM generate_series(1, 3) i",
        "INSERT INTO t VALUES (4, repeat('x', 12000000)), (5, repeat('x', 14000000))",
    )
    settings = PostgresSettings(database.dsn(), "t", ("id",), row_bytes=13_000_000)

    async with described(settings) as backend:
        for _ in range(2):  # the size of rows is known after the first
            among_small = await backend.fetch(keys(1, 4), timeout_s=PATIENCE_S)
            await backend.fetch(keys(1, 3), timeout_s=PATIENCE_S)
        alone = await backend.fetch(keys(4, 4), timeout_s=PATIENCE_S)
        await backend.fetch(keys(1, 3), timeout_s=PATIENCE_S)
        large = await backend.fetch(keys(5, 5), timeout_s=PATIENCE_S)

    assert (among_small.ordinals.tolist(), among_small.deferred.tolist()) == ([0, 1, 2], [3])
    assert (alone.ordinals.tolist(), alone.deferred.tolist()) == ([0], [])
    assert codes(large) == {0: ErrorCode.ROW_TOO_LARGE}


@pytest.mark.real_path
async def test_all_deferred_rows_arrive(database: Database) -> None:
    """Lookups of more rows than an answer holds have all of them, without a retry."""
    database.execute(
        "CREATE TABLE t (id int8 PRIMARY KEY, name text, tier int4)",
        "INSERT INTO t SELECT i, repeat(i::text, 2000000), 1 FROM generate_series(1, 9) i",
        "INSERT INTO t VALUES (10, repeat('x', 9000000), 1)",
    )
    settings = running.settings(batch=BatchSettings(max_in_flight=2))
    backend = PostgresBackend(PostgresSettings(database.dsn(), "t", ("id",)))

    async with serving(backend, settings) as dimension:
        answers = await running.lookup(dimension, *range(1, 12))

    assert {at: answer[:12] for at, answer in answers.items()} == {
        **{at: f"fetched {at + 1}" + f"{at + 1}" * 3 for at in range(9)},
        9: "error row_to",
        10: "missing",
    }
    assert dimension.statistics().retries == 0


@pytest.mark.parametrize("kind", ["indexed", "scanned"])
async def test_rows_of_a_key_count_together(database: Database, kind: str) -> None:
    """With several rows per key, the limit holds for all rows of a key."""
    database.execute(
        "CREATE TABLE t (id int8, number int4, name text)",
        f"INSERT INTO t SELECT 1, i, repeat('x', {ROW_BYTES // 3}) FROM generate_series(1, 2) i",
        f"INSERT INTO t SELECT 2, i, repeat('x', {ROW_BYTES // 3}) FROM generate_series(1, 4) i",
        f"INSERT INTO t VALUES (3, 1, 'a'), (3, 2, repeat('x', {MANY})), (4, 1, 'b')",
        # More than an answer has.
        "INSERT INTO t SELECT k, i, repeat('x', 60000) FROM generate_series(1, 200) i, "
        "unnest(ARRAY[0, 5]) k",
        *(["CREATE INDEX ON t (id)"] if kind == "indexed" else []),
    )
    settings = PostgresSettings(
        database.dsn(), "t", ("id",), row_bytes=ROW_BYTES, has_several_rows=True
    )

    async with described(settings) as backend:
        lists = RowMatch(backend, Match.ALL)
        fetched = await lists.fetch(keys(0, 4), timeout_s=PATIENCE_S)
        rest = await lists.fetch(keys(1, 6), timeout_s=PATIENCE_S)

    large = ErrorCode.ROW_TOO_LARGE
    assert codes(fetched) == {0: large}
    assert fetched.deferred.tolist() == [1, 2, 3, 4]
    assert codes(rest) == {1: large, 2: large, 4: large}
    kept = dict(zip(rest.ordinals.tolist(), rest.rows["number"].to_pylist(), strict=True))
    assert (kept[0], kept[3]) == ([1, 2], [1])
    assert not rest.deferred.size


@pytest.mark.parametrize("kind", ["indexed", "scanned"])
@pytest.mark.parametrize(
    ("match", "most", "deferred"),
    [(None, 3, []), (Match.FIRST, 2, []), (Match.ALL, 79_500, [1])],
    ids=["none", "first", "all"],
)
async def test_many_rows_are_not_sent(
    database: Database,
    kind: str,
    match: Match | None,
    most: int,
    deferred: list[int],
) -> None:
    """The server sends no more rows of a key than are used; each of a list has bytes."""
    database.execute(
        "CREATE TABLE t (id int8, number int4)",
        "INSERT INTO t SELECT 1, i FROM generate_series(100000, 200000) i",
        "INSERT INTO t VALUES (2, 7)",
        *(["CREATE INDEX ON t (id)"] if kind == "indexed" else []),
        "ANALYZE t",
    )

    settings = PostgresSettings(
        database.dsn(),
        "t",
        ("id",),
        has_several_rows=match is not None,
        is_first=match is Match.FIRST,
    )
    async with described(settings) as backend:
        fetched = await backend.fetch(keys(1, 2), timeout_s=PATIENCE_S)
        assert backend.uses_index is (kind == "indexed")

    assert fetched.rows.num_rows <= most
    assert fetched.deferred.tolist() == deferred
    assert codes(fetched) == ({0: ErrorCode.ROW_TOO_LARGE} if deferred else {})


async def test_several_large_rows_are_ambiguous(database: Database) -> None:
    """A key whose rows do not fit into an answer is ambiguous without `match`."""
    database.execute(
        "CREATE TABLE t (id int8, name text)",
        "INSERT INTO t SELECT 1, repeat('x', 6000000) FROM generate_series(1, 3) i",
        "CREATE INDEX ON t (id)",
    )
    backend = PostgresBackend(PostgresSettings(database.dsn(), "t", ("id",)))

    async with serving(backend) as dimension:
        answers = await running.lookup(dimension, 1, 2)

    assert answers == {0: "error ambiguous", 1: "missing"}
