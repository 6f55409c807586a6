"""Readers of a table's notifications, and their changes as plain values."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.changelog.change_decoder import Change, RowChanges, TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError
from lookup_core.keys.json_keys import typed_keys_from_json
from service.connectors.ports.source import SplitPiece, SplitReader
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsSettings,
)
from service.engine.dimension import Dimension
from tests.integration.notifications.trigger_messages import CHANNEL, make_triggers
from tools.processes.postgres_server import Database

Keys: TypeAlias = list[int]

PATIENCE_S = 20.0  # a test that waits longer has failed
KEY, COLUMNS = pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()})
IS_LISTENING = "application_name = 'sidelook listen' AND datname = current_database()"
TERMINATE = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {IS_LISTENING}"


def listened(database: Database) -> PostgresNotificationsSettings:
    """Create a table `t` with its triggers; return the settings of its source."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    make_triggers(database, "t", ["id"])
    return notifications_of(database)


def notifications_of(database: Database) -> PostgresNotificationsSettings:
    """The settings of the source of the table `t`."""
    return PostgresNotificationsSettings(
        database.dsn(), "t", CHANNEL, connect_timeout_s=PATIENCE_S, heartbeat_interval_s=0.05
    )


async def note_of(dimension: Dimension, key: int = 1) -> str:
    """The outcome of a key in the table `t`, and the note of its row."""
    keys = typed_keys_from_json([key], dimension.schema.known())
    (answer,) = await dimension.lookup(keys, columns=["note"], timeout_s=PATIENCE_S)
    found = [] if answer.rows is None else answer.rows["note"].to_pylist()
    return " ".join([Outcome(answer.outcomes[0]).label, *found])


def schema_of(database: Database) -> DimensionSchema:
    """The schema of the present table `t`."""
    ((table_id,),) = database.query("SELECT oid FROM pg_class WHERE relname = 't'")
    return DimensionSchema(KEY, COLUMNS, TableOrigin("public", "t", table_id=table_id))


@asynccontextmanager
async def reading(
    settings: PostgresNotificationsSettings, schema: DimensionSchema
) -> AsyncIterator[SplitReader]:
    """A reader that is caught up, and has reported the gap before its connection."""
    source = PostgresNotifications(settings)
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
    """All pieces up to the first for which the condition is true."""
    pieces: list[SplitPiece] = []
    async with asyncio.timeout(PATIENCE_S):
        while not (pieces and condition(pieces[-1])):
            pieces += await reader.read()
    return pieces


async def changes_of(reader: SplitReader) -> list[Keys | TableChange]:
    """The next changes; those of rows as their keys."""
    pieces = await read_until(reader, lambda piece: bool(piece.changes))
    return [each if isinstance(each, TableChange) else ids(each) for each in pieces[-1].changes]


def changed_ids(pieces: Sequence[SplitPiece]) -> Keys:
    """The keys of all changes of rows."""
    changes = [change for piece in pieces for change in piece.changes]
    return [each for change in changes if isinstance(change, RowChanges) for each in ids(change)]


def ids(change: RowChanges) -> Keys:
    """The keys of a change."""
    keys: Keys = change.keys["id"].to_pylist()
    return keys


async def end_of(reader: SplitReader) -> BackendError:
    """The error with which reading ends."""
    with pytest.raises(BackendError) as failure:
        await read_until(reader, lambda _: False)
    return failure.value


async def refusal_of(
    settings: PostgresNotificationsSettings, schema: DimensionSchema
) -> BackendError:
    """The error of opening a reader."""
    with pytest.raises(BackendError) as failure:
        async with PostgresNotifications(settings).reader(schema):
            pass
    return failure.value


def gap_in(changes: Sequence[Change]) -> TableChange:
    """The only change: that earlier notifications may be lost, with the last transaction."""
    (gap,) = changes
    assert isinstance(gap, TableChange)
    assert gap.transaction_id > 0
    return gap
