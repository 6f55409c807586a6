"""Types of PostgreSQL keys and columns, and the contract of backends on a real server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

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


def things(database: Database, *key: str) -> PostgresSettings:
    """Settings of the table `things`."""
    return PostgresSettings(database.dsn(), "things", key or ("id",))


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
