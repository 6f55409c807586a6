"""Builders of lookup tests on a real PostgreSQL: tables, backends and dimensions over them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.settings import DimensionSettings
from service.connectors.ports.backend import Backend
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.service.engine import running
from tools.processes.postgres_server import Database

PATIENCE_S = 20.0  # a test that waits longer has failed
_SQL_TYPES = (
    (pa.int16(), "int2"),
    (pa.int32(), "int4"),
    (pa.int64(), "int8"),
    (pa.float32(), "float4"),
    (pa.float64(), "float8"),
    (pa.bool_(), "bool"),
    (pa.utf8(), "text"),
    (pa.binary(), "bytea"),
    (pa.date32(), "date"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", "UTC"), "timestamptz"),
    (pa.decimal128(38, 2), "numeric(38, 2)"),
)


def put_table(
    database: Database, rows: pa.Table, *, key: Sequence[str], name: str = "dimension"
) -> PostgresSettings:
    """Create the table with the key as its primary key; return the settings of a backend."""
    columns = ", ".join(f'"{field.name}" {_sql_type(field.type)}' for field in rows.schema)
    quoted_key = ", ".join(f'"{part}"' for part in key)
    database.execute(
        f'DROP TABLE IF EXISTS "{name}"',
        f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({quoted_key}))',
    )
    if rows.num_rows:
        values = [list(row.values()) for row in rows.to_pylist()]
        database.insert(f'"{name}"', values)
    return PostgresSettings(database.dsn(), f'public."{name}"', tuple(key))


@contextmanager
def changing(database: Database, statement: str) -> Iterator[int]:
    """Execute a statement, commit at the end of the block; yield the id of the transaction."""
    with psycopg.connect(database.dsn()) as connection:
        connection.execute(statement.encode())
        row = connection.execute(b"SELECT pg_current_xact_id()::text::int8").fetchone()
        assert row is not None
        yield row[0]


def create_reader(database: Database, *, table: str = "dimension") -> str:
    """Create a role that may only read the table; return its DSN."""
    role = f"reader_of_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN", f"GRANT SELECT ON {table} TO {role}")
    return database.dsn(user=role)


@asynccontextmanager
async def described(settings: PostgresSettings) -> AsyncIterator[PostgresBackend]:
    """A backend that has described its table."""
    async with PostgresBackend(settings) as backend:
        await backend.describe(timeout_s=PATIENCE_S)
        yield backend


async def refusal_of(settings: PostgresSettings) -> BackendError:
    """The error of describing the relation."""
    async with PostgresBackend(settings) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)
    return caught.value


async def schema_of(settings: PostgresSettings) -> DimensionSchema:
    """The schema of the relation."""
    async with PostgresBackend(settings) as backend:
        return await backend.describe(timeout_s=PATIENCE_S)


async def loaded(settings: PostgresSettings, schema: DimensionSchema) -> list[RowChanges]:
    """The pages of a load."""
    source = PostgresSnapshot(settings)
    found: list[RowChanges] = []
    async with source.enumerator(schema) as enumerator, source.reader(schema) as reader:
        for split in await enumerator.discover():
            await reader.assign(split, position=None)
            is_finished = False
            while not is_finished:
                for piece in await reader.read():
                    found += [each for each in piece.changes if isinstance(each, RowChanges)]
                    is_finished = piece.is_finished
    return found


async def names_of(backend: PostgresBackend, *ids: int, timeout_s: float = PATIENCE_S) -> list[str]:
    """The names in the rows of the keys."""
    keys = pa.record_batch({"id": pa.array(ids)})
    fetched = await backend.fetch(keys, timeout_s=timeout_s)
    names: list[str] = fetched.rows["name"].to_pylist()
    return names


@asynccontextmanager
async def serving(
    backend: Backend,
    settings: DimensionSettings | None = None,
    *,
    sources: RefreshSources | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Dimension]:
    """A described dimension over the backend until the block ends; without retries by default."""
    async with backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(
            settings or running.settings(),
            backend,
            sources=sources,
            clock=clock or asyncio.get_running_loop().time,
        )
        task = tasks.create_task(dimension.run())
        await dimension.schema.wait(PATIENCE_S)
        yield dimension
        task.cancel()


def _sql_type(kind: pa.DataType) -> str:
    return next(sql_type for arrow, sql_type in _SQL_TYPES if arrow == kind)
