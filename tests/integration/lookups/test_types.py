"""Types of PostgreSQL keys and columns, and the contract of backends on a real server."""

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.json_keys import typed_keys_from_json
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.lookups.tables import PATIENCE_S, described, put_table
from tests.service.connectors.backend_contract import BackendContract, OpenBackend
from tools.processes.postgres_server import Database

UUID = "00112233-4455-6677-8899-aabbccddeeff"
INSTANT = pa.timestamp("us", "UTC")

# (type, literal, Arrow type, value); what the Arrow type cannot hold is null.
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
    ("int4[]", "'{1,NULL}'", pa.list_(pa.int32()), [1, None]),
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


def things(database: Database, *key: str) -> PostgresSettings:
    """Settings of the table `things`."""
    return PostgresSettings(database.dsn(), "things", key or ("id",))


def put_all_types(database: Database, *, rows: int) -> list[str]:
    """Create `things` with rows of all values, then as many rows of NULLs; return the columns."""
    names = [f"c{at}" for at in range(len(COLUMNS))]
    columns = ", ".join(f"{name} {each[0]}" for name, each in zip(names, COLUMNS, strict=True))
    literals = ", ".join(each[1] for each in COLUMNS)
    database.execute(
        *TYPES,
        f"CREATE TABLE things (id int4 PRIMARY KEY, {columns})",
        f"INSERT INTO things SELECT g, {literals} FROM generate_series(1, {rows}) AS g",
        f"INSERT INTO things SELECT g FROM generate_series({rows} + 1, 2 * {rows}) AS g",
    )
    return names


async def fetched(database: Database, keys: list[Any]) -> tuple[DimensionSchema, FetchedRows]:
    """The schema of the table `things`, and the rows of keys in their JSON form."""
    async with PostgresBackend(things(database)) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        typed = typed_keys_from_json(keys, schema)
        return schema, await backend.fetch(typed.columns, timeout_s=PATIENCE_S)


class TestPostgresBackend(BackendContract):
    """The contract of backends, without and with the snapshot that a change feed needs."""

    @pytest.fixture(params=[pytest.param(False, marks=pytest.mark.real_path, id="plain"), True])
    def open_backend(self, database: Database, request: pytest.FixtureRequest) -> OpenBackend:
        """Open a backend over a table of the rows."""

        @asynccontextmanager
        async def opened(rows: pa.Table, key: Sequence[str]) -> AsyncIterator[PostgresBackend]:
            settings = replace(put_table(database, rows, key=key), is_followed=request.param)
            async with PostgresBackend(settings) as backend:
                yield backend

        return opened


async def test_columns_keep_their_values(database: Database) -> None:
    """Each value has the Arrow type of its column; a value that it cannot hold is null."""
    names = put_all_types(database, rows=1)

    schema, found = await fetched(database, [1, 2])

    assert [schema.columns.field(name).type for name in names] == [each[2] for each in COLUMNS]
    values, nulls = (row.values() for row in found.rows.to_pylist())
    expected = [each[3] for each in COLUMNS]
    assert [str(value) if isinstance(value, dt.datetime) else value for value in values] == expected
    assert set(nulls) == {None}


async def test_large_batches_have_the_same_rows(database: Database) -> None:
    """Rows that arrive in blocks equal those that arrive as records."""
    put_all_types(database, rows=900)
    keys = np.random.default_rng(5).permutation(2000).astype(np.int32)
    async with described(things(database)) as backend:
        batch = pa.record_batch({"id": keys})
        small = await backend.fetch(batch.slice(0, 999), timeout_s=PATIENCE_S)
        large = await backend.fetch(batch, timeout_s=PATIENCE_S)

    assert keys[large.ordinals].tolist() == list(range(1, 1801))
    in_order = np.argsort(large.ordinals)[: small.rows.num_rows]
    assert large.ordinals[in_order].tolist() == small.ordinals.tolist()
    assert large.rows.take(pa.array(in_order)) == small.rows


async def test_long_rows_never_come_in_blocks(database: Database) -> None:
    """Long rows are sent one by one, so that the server does not collect them in memory."""
    database.execute(
        "CREATE TABLE things (id int4 PRIMARY KEY, value text)",
        "INSERT INTO things SELECT g, repeat('x', 2000) FROM generate_series(1, 2000) AS g",
    )
    keys = pa.record_batch({"id": pa.array(range(2000, 0, -1), pa.int32())})
    async with described(things(database)) as backend:
        ordinals = [
            (await backend.fetch(keys, timeout_s=PATIENCE_S)).ordinals.tolist() for _ in range(2)
        ]

    assert ordinals == [list(range(2000))] * 2  # blocks would be in the order of the keys


@pytest.mark.parametrize(
    ("sql_type", "stored", "key"),
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
    database: Database, sql_type: str, stored: str, key: object
) -> None:
    """A key matches by SQL equality, in any notation."""
    database.execute(*TYPES, f"CREATE TABLE things (id {sql_type} PRIMARY KEY, value text)")
    database.execute(f"INSERT INTO things VALUES ('{stored}', 'here')")

    _, found = await fetched(database, [key])

    assert found.rows.to_pylist() == [{"value": "here"}]


async def test_unsendable_date_spares_its_batch(database: Database) -> None:
    """A date beyond PostgreSQL's range matches nothing; the other keys are answered (D13)."""
    database.execute("CREATE TABLE things (id date PRIMARY KEY, value text)")
    database.execute("INSERT INTO things VALUES ('2013-01-01', 'here')")
    keys = pa.array([2**31 - 1, 15706, -(2**31)], pa.int32()).cast(pa.date32())

    async with described(things(database)) as backend:
        found = await backend.fetch(pa.record_batch({"id": keys}), timeout_s=PATIENCE_S)

    assert (found.ordinals.tolist(), found.rows.to_pylist()) == ([1], [{"value": "here"}])


async def test_names_may_be_anything(database: Database) -> None:
    """Names may contain quotes, dots, braces and blanks, and be reserved words (C7)."""
    table = '"my ""schema"."a.b"'
    database.execute(
        'CREATE SCHEMA "my ""schema"',
        f'CREATE TABLE {table} ("select" int4 PRIMARY KEY, "k1{{}}" text, ordinal text)',
        f"INSERT INTO {table} VALUES (1, 'x', 'y')",
    )

    async with described(PostgresSettings(database.dsn(), table, ("select",))) as backend:
        keys = pa.record_batch({"select": pa.array([1], pa.int32())})
        found = await backend.fetch(keys, timeout_s=PATIENCE_S)

    assert found.rows.to_pylist() == [{"k1{}": "x", "ordinal": "y"}]


async def test_dropped_columns_are_not_offered(database: Database) -> None:
    """A column that was dropped before the description is not part of the schema."""
    database.execute("CREATE TABLE things (gone int4, id int4 PRIMARY KEY, a text, b text)")
    database.execute("ALTER TABLE things DROP COLUMN gone, DROP COLUMN a")

    schema, _ = await fetched(database, [1])

    assert schema.columns == pa.schema({"b": pa.utf8()})
