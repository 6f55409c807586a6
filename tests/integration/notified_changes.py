"""A reader of a table's notifications for tests, and what it tells, in plain values.

Not the table's messages themselves; `trigger_messages` has those.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import Change, RowChanges, TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError
from lookup_core.sources.splits import Split
from service.connectors.ports.source import SplitPiece, SplitReader
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import PostgresNotifications
from tests.integration.trigger_messages import CHANNEL, make_triggers
from tools.processes.postgres_server import Database

Keys: TypeAlias = list[int]

PATIENCE_S = 10.0  # what would be a failure of the test
KEY, COLUMNS = pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()})
SCHEMA = DimensionSchema(KEY, COLUMNS, TableOrigin("public", "t"))  # of no table that is there
IS_LISTENING = "application_name = 'sidelook listen' AND datname = current_database()"


def listened(database: Database) -> PostgresNotificationsSettings:
    """Make a table `t` with its triggers."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    make_triggers(database, "t", ["id"])
    return PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S, heartbeat_interval_s=0.05
    )


@asynccontextmanager
async def reading(
    settings: PostgresNotificationsSettings, schema: DimensionSchema | None = None
) -> AsyncIterator[SplitReader]:
    """A reader that has the split, and is caught up."""
    source = PostgresNotifications(settings)
    if schema is None:
        schema = await asyncio.to_thread(schema_of, settings)
    async with source.enumerator(schema) as enumerator:
        (split,) = await enumerator.discover()
    async with source.reader(schema) as reader:
        await reader.assign(split, position=None)
        pieces = await read_until(reader, lambda piece: piece.is_caught_up)
        gap_in([change for piece in pieces for change in piece.changes])
        yield reader


async def read_until(
    reader: SplitReader, condition: Callable[[SplitPiece], bool]
) -> list[SplitPiece]:
    """All pieces up to one for which this is true."""
    pieces: list[SplitPiece] = []
    async with asyncio.timeout(PATIENCE_S):
        while not (pieces and condition(pieces[-1])):
            pieces += await reader.read()
    return pieces


async def changes_of(reader: SplitReader) -> list[Keys | TableChange]:
    """The next changes; of rows, their keys."""
    pieces = await read_until(reader, lambda piece: bool(piece.changes))
    return [plain(change) for change in pieces[-1].changes]


def told_ids(pieces: Sequence[SplitPiece]) -> list[int]:
    """The keys of all changes of rows."""
    changes = [change for piece in pieces for change in piece.changes]
    return [each for change in changes if isinstance(change, RowChanges) for each in ids(change)]


def ids(change: RowChanges) -> list[int]:
    """The keys, which may be any number of messages'."""
    keys: list[int] = change.keys["id"].to_pylist()
    return keys


async def failure_of(
    settings: PostgresNotificationsSettings, schema: DimensionSchema = SCHEMA
) -> BackendError:
    """What opening a reader ends with."""
    with pytest.raises(BackendError) as failure:
        async with PostgresNotifications(settings).reader(schema):
            pass
    return failure.value


def schema_of(settings: PostgresNotificationsSettings) -> DimensionSchema:
    """The schema of the table `t` that there is now, which this role may not even see."""
    with psycopg.connect(settings.dsn) as session:
        row = session.execute("SELECT oid FROM pg_class WHERE relname = 't'").fetchone()
    assert row is not None
    return DimensionSchema(KEY, COLUMNS, TableOrigin("public", "t", table_id=row[0]))


def gap_in(changes: Sequence[Change]) -> TableChange:
    """That something was lost, and up to which transaction; they must tell nothing else."""
    (gap,) = changes
    assert isinstance(gap, TableChange)
    assert gap.reason == "notifications may have been lost before the connection was made"
    assert gap.transaction_id > 0
    return gap


async def gap_of(settings: PostgresNotificationsSettings) -> TableChange:
    """What a reader that is opened now tells first."""
    schema = await asyncio.to_thread(schema_of, settings)
    async with PostgresNotifications(settings).reader(schema) as reader:
        await reader.assign(Split("notifications"), position=None)
        (piece,) = await reader.read()
    return gap_in(piece.changes)


def plain(change: Change) -> Keys | TableChange:
    """A change, or of rows their keys."""
    return change if isinstance(change, TableChange) else ids(change)
