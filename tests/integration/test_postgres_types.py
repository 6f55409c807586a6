"""Every type of a real server arrives exactly, as text, or as null: never wrong."""

import asyncio
import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.json_keys import typed_keys_from_json
from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from tests.service.engine import running
from tests.service.engine.running import PATIENCE_S, told
from tools.processes.postgres_server import Database, PostgresServer

# (type, literal, Arrow type, value)
UUID = "00112233-4455-6677-8899-aabbccddeeff"
INSTANT = pa.timestamp("us", "UTC")

COLUMNS: list[tuple[str, str, pa.DataType, Any]] = [
    ("int2", "-32768", pa.int16(), -32768),
    ("int4", "2147483647", pa.int32(), 2147483647),
    ("int8", "-9223372036854775808", pa.int64(), -(2**63)),
    ("float4", "'0.5'", pa.float32(), 0.5),
    ("float8", "'-Infinity'", pa.float64(), float("-inf")),
    ("bool", "true", pa.bool_(), True),
    ("text", "'é\U0001f600'", pa.utf8(), "é\U0001f600"),
    ("varchar(5)", "'abc'", pa.utf8(), "abc"),
    ("char(5)", "'abc'", pa.utf8(), "abc  "),
    ("name", "'abc'", pa.utf8(), "abc"),
    ('"char"', "'a'", pa.utf8(), "a"),
    ("bytea", r"'\x00ff'", pa.binary(), b"\x00\xff"),
    ("date", "'2013-01-01'", pa.date32(), dt.date(2013, 1, 1)),
    ("date", "'infinity'", pa.date32(), None),
    ("date", "'0044-03-15 BC'", pa.date32(), None),
    ("date", "'10000-01-01'", pa.date32(), None),
    ("timestamp", "'2013-01-01 05:00:00.000001'", pa.timestamp("us"), "2013-01-01 05:00:00.000001"),
    ("timestamp", "'-infinity'", pa.timestamp("us"), None),
    ("timestamptz", "'2013-01-01 05:00+05'", INSTANT, "2013-01-01 00:00:00+00:00"),
    ("timestamptz", "'infinity'", INSTANT, None),
    ("timestamptz", "'10000-01-01 00:00+00'", INSTANT, None),
    ("numeric(10, 2)", "1.5", pa.decimal128(10, 2), Decimal("1.50")),
    ("numeric(38, 0)", "9" * 38, pa.decimal128(38, 0), Decimal("9" * 38)),
    ("numeric(10, 2)", "'NaN'", pa.decimal128(10, 2), None),
    ("numeric", "1.50", pa.utf8(), "1.50"),
    ("numeric", "'NaN'", pa.utf8(), "NaN"),
    ("numeric(3, -2)", "1234", pa.utf8(), "1200"),
    ("numeric(39, 0)", "1", pa.utf8(), "1"),
    ("uuid", f"'{UUID.upper()}'", pa.utf8(), UUID),
    ("json", "'{\"a\": 1}'", pa.utf8(), '{"a": 1}'),
    ("jsonb", "'{\"a\":1}'", pa.utf8(), '{"a": 1}'),
    ("int4[]", "'{1,NULL}'", pa.utf8(), "{1,NULL}"),
    ("interval", "'1 day'", pa.utf8(), "1 day"),
    ("time", "'05:00'", pa.utf8(), "05:00:00"),
    ("inet", "'10.0.0.1'", pa.utf8(), "10.0.0.1/32"),
    ("mood", "'happy'", pa.utf8(), "happy"),
    ("positive", "7", pa.int32(), 7),
    ("price", "7.5", pa.decimal128(8, 2), Decimal("7.50")),
    ("pair", "'(1,a)'", pa.utf8(), "(1,a)"),
]
TYPES = (
    "CREATE TYPE mood AS ENUM ('happy', 'sad')",
    "CREATE DOMAIN positive AS int4 CHECK (VALUE > 0)",
    "CREATE DOMAIN amount AS numeric(8, 2)",
    "CREATE DOMAIN price AS amount CHECK (VALUE > 0)",
    "CREATE TYPE pair AS (a int4, b text)",
)


async def ask(
    database: Database, keys: list[Any], *, key: str = "id"
) -> tuple[DimensionSchema, FetchedRows]:
    """The schema of the table `things`, and the rows of keys that are given as JSON has them."""
    async with PostgresBackend(PostgresSettings(database.dsn(), "things", (key,))) as backend:
        schema = await backend.describe(timeout_s=5.0)
        typed = typed_keys_from_json(keys, schema)
        return schema, await backend.fetch(typed.columns, timeout_s=5.0)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column[0]}={column[1][:14]}")
async def test_columns_arrive_as_they_are(
    database: Database, column: tuple[str, str, pa.DataType, Any]
) -> None:
    """Each value comes in the Arrow type of its column; what that cannot hold comes as null."""
    sql_type, literal, arrow_type, expected = column
    database.execute(*TYPES, f"CREATE TABLE things (id int4 PRIMARY KEY, value {sql_type}, w int4)")
    database.execute(f"INSERT INTO things VALUES (1, {literal}, 1), (2, NULL, 2)")

    schema, fetched = await ask(database, [1, 2])

    assert schema.columns.field("value").type == arrow_type
    values = fetched.rows["value"].to_pylist()
    is_time = pa.types.is_timestamp(arrow_type) and expected is not None
    assert [str(values[0]) if is_time else values[0], values[1]] == [expected, None]
    assert fetched.rows["w"].to_pylist() == [1, 2]


async def test_large_batches_have_the_same_rows(database: Database) -> None:
    """Rows that come in blocks, by ascending key, are those that come as records."""
    names = [f"c{at}" for at in range(len(COLUMNS))]
    columns = ", ".join(f"{name} {each[0]}" for name, each in zip(names, COLUMNS, strict=True))
    literals = ", ".join(each[1] for each in COLUMNS)
    database.execute(
        *TYPES,
        f"CREATE TABLE things (id int4 PRIMARY KEY, {columns})",
        f"INSERT INTO things SELECT g, {literals} FROM generate_series(1, 900) AS g",
        "INSERT INTO things SELECT g FROM generate_series(901, 1900) AS g",
    )
    keys = np.random.default_rng(5).permutation(2000).astype(np.int32)
    async with PostgresBackend(PostgresSettings(database.dsn(), "things", ("id",))) as backend:
        schema = await backend.describe(timeout_s=5.0)
        batch = pa.record_batch([keys], schema=schema.key)
        small = await backend.fetch(batch.slice(0, 999), timeout_s=5.0)
        large = await backend.fetch(batch, timeout_s=5.0)

    assert keys[large.ordinals].tolist() == list(range(1, 1901))
    in_order = np.argsort(large.ordinals)[: small.rows.num_rows]
    assert large.ordinals[in_order].tolist() == small.ordinals.tolist()
    assert large.rows.take(pa.array(in_order)) == small.rows


async def test_long_rows_never_come_in_blocks(database: Database) -> None:
    """The server need not hold many long rows at once: they are sent as they are found."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, value text)",
        "INSERT INTO things SELECT g, repeat('x', 2000) FROM generate_series(1, 2000) AS g",
    )
    keys = pa.record_batch({"id": pa.array(range(2000, 0, -1), pa.int32())})
    async with PostgresBackend(PostgresSettings(database.dsn(), "things", ("id",))) as backend:
        await backend.describe(timeout_s=5.0)
        for _ in range(2):
            fetched = await backend.fetch(keys, timeout_s=5.0)

    assert fetched.ordinals.tolist() == list(range(2000))


@pytest.mark.parametrize(
    ("sql_type", "stored", "asked"),
    [
        ("uuid", UUID, UUID.upper()),
        ("numeric(10, 2)", "1.5", "1.50"),
        ("positive", "7", 7),
        ("price", "7.5", "7.5"),
        ("varchar(3)", "abc", "abc"),
        ('text COLLATE "C"', "abc", "abc"),
        ("date", "2013-01-01", "2013-01-01"),
        ("timestamptz", "2013-01-01 05:00+05", "2013-01-01T00:00:00Z"),
        ("timestamp", "2013-01-01 05:00", "2013-01-01T05:00:00"),
    ],
)
async def test_keys_are_found_by_value(
    database: Database, sql_type: str, stored: str, asked: object
) -> None:
    """A key finds its row by what it equals in SQL, however it was written."""
    database.execute(*TYPES, f"CREATE TABLE things (id {sql_type} PRIMARY KEY, value text)")
    database.execute(f"INSERT INTO things VALUES ('{stored}', 'here')")

    _, fetched = await ask(database, [asked])

    assert fetched.rows.to_pylist() == [{"value": "here"}]


async def test_far_away_times_do_not_fail_their_batch(database: Database) -> None:
    """A date that cannot be sent matches nothing; the keys beside it are answered."""
    database.execute("CREATE TABLE things (id date PRIMARY KEY, value text)")
    database.execute("INSERT INTO things VALUES ('2013-01-01', 'here')")
    keys = pa.array([2**31 - 1, 15706, -(2**31)], pa.int32()).cast(pa.date32())

    async with PostgresBackend(PostgresSettings(database.dsn(), "things", ("id",))) as backend:
        schema = await backend.describe(timeout_s=5.0)
        fetched = await backend.fetch(pa.record_batch([keys], schema=schema.key), timeout_s=5.0)

    assert fetched.ordinals.tolist() == [1]
    assert fetched.rows.to_pylist() == [{"value": "here"}]


async def test_names_may_be_anything(database: Database) -> None:
    """Schema, table, key and columns may hold quotes, dots, braces, blanks and reserved words."""
    table = '"my ""schema"."a.b"'
    database.execute(
        'CREATE SCHEMA "my ""schema"',
        f'CREATE TABLE {table} ("select" int4 PRIMARY KEY, "k1{{}}" text, ordinal text)',
        f"INSERT INTO {table} VALUES (1, 'x', 'y')",
    )
    settings = PostgresSettings(database.dsn(), table, ("select",))

    async with PostgresBackend(settings) as backend:
        schema = await backend.describe(timeout_s=5.0)
        keys = pa.record_batch([pa.array([1], pa.int32())], schema=schema.key)
        fetched = await backend.fetch(keys, timeout_s=5.0)

    assert fetched.rows.to_pylist() == [{"k1{}": "x", "ordinal": "y"}]


async def test_dropped_columns_are_not_offered(database: Database) -> None:
    """A column that was dropped leaves a gap in the catalog, and none in the schema."""
    database.execute("CREATE TABLE things (gone int4, id int4 PRIMARY KEY, a text, b text)")
    database.execute("ALTER TABLE things DROP COLUMN gone, DROP COLUMN a")

    schema, _ = await ask(database, [1])

    assert schema.columns == pa.schema({"b": pa.utf8()})


async def test_unconvertible_key_is_rejected(postgres_server: PostgresServer) -> None:
    """A key that the database's encoding lacks is refused as such; others find their rows."""
    database = postgres_server.new_database("ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    database.execute("CREATE TABLE things (id text PRIMARY KEY, value text)")
    database.insert("things", [("é", "ÿ")])

    _, found = await ask(database, ["é", "e"])
    with pytest.raises(BackendError) as caught:
        await ask(database, ["é", "€"])

    assert (found.ordinals.tolist(), found.rows.to_pylist()) == ([0], [{"value": "ÿ"}])
    assert caught.value.code is ErrorCode.KEY_REJECTED


async def test_rejected_key_leaves_the_others_alone(postgres_server: PostgresServer) -> None:
    """In a dimension exactly the key that the database refuses is an error."""
    database = postgres_server.new_database("ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    database.execute("CREATE TABLE things (id text PRIMARY KEY, name text)")
    database.insert("things", [("a", "one"), ("é", "two")])
    settings = PostgresSettings(database.dsn(), "things", ("id",))
    async with PostgresBackend(settings) as backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(running.settings(), backend)
        task = tasks.create_task(dimension.run())
        schema = await dimension.wait_until_described(PATIENCE_S)
        typed = typed_keys_from_json(["a", "€", "é", "?"], schema)
        answers = await dimension.lookup(typed, columns=None, timeout_s=PATIENCE_S)
        task.cancel()

    assert told(answers) == {
        0: "fetched one",
        1: "error key_rejected",
        2: "fetched two",
        3: "missing",
    }
