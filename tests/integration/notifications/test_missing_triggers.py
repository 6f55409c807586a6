"""Triggers that are missing, disabled or of another table: cached rows are not used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.errors import ErrorCode
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.sources.splits import Split
from lookup_core.statistics import InvalidationOrigin
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.sessions import PostgresSettings
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.integration.lookups.tables import serving
from tests.integration.notifications.notified_changes import (
    PATIENCE_S,
    end_of,
    gap_in,
    listened,
    note_of,
    reading,
    refusal_of,
    schema_of,
)
from tests.integration.notifications.trigger_messages import make_triggers
from tests.service.engine.refreshing import until, until_feed_is
from tools.processes.postgres_server import Database, running_postgres, running_standby

TRIGGERS = ("Changes_insert", "Changes_update", "Changes_delete", "Changes_truncate")
SCRIPT = "python -m service gen-triggers planes"
SUCCESSOR = "CREATE TABLE successor (LIKE t INCLUDING ALL); INSERT INTO successor VALUES (1, 'new')"
SWAP = "BEGIN; ALTER TABLE t RENAME TO former; ALTER TABLE successor RENAME TO t; COMMIT"


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """The source of changes of a table `t` with its triggers."""
    return replace(listened(database), script=SCRIPT)


@asynccontextmanager
async def followed(
    database: Database, settings: PostgresNotificationsSettings
) -> AsyncIterator[Dimension]:
    """A dimension of the table with a cache and the feed."""
    feed = PostgresNotifications(settings)
    sources = RefreshSources(lambda: feed, InvalidationOrigin.NOTIFICATION)
    table = PostgresSettings(database.dsn(), "t", ("id",), is_followed=True)
    async with serving(PostgresBackend(table), sources=sources) as dimension:
        yield dimension


def last_error(dimension: Dimension) -> str | None:
    """The error of the feed."""
    feed = dimension.refresh_statistics().feed
    return None if feed is None else feed.last_error


async def test_reenabled_triggers_end_the_reader(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """If triggers were disabled temporarily, the reader fails, and the next one reports a gap."""
    async with reading(settings, schema_of(database)) as reader:
        database.execute(
            "BEGIN; ALTER TABLE t DISABLE TRIGGER USER; INSERT INTO t VALUES (1)",
            *(f'ALTER TABLE t ENABLE ALWAYS TRIGGER "{name}"' for name in TRIGGERS),
            "COMMIT",
        )
        failure = await end_of(reader)
    async with reading(settings, schema_of(database)):
        pass

    assert failure.code is ErrorCode.BACKEND_REJECTED


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN is_open bool DEFAULT false",
        "ALTER TABLE t ALTER id TYPE int USING id + 0",
        "ALTER TYPE mood RENAME VALUE 'happy' TO 'glad'",
    ],
)
async def test_changed_table_ends_the_reader(
    database: Database, settings: PostgresNotificationsSettings, statement: str
) -> None:
    """A change of rows by ALTER TABLE or TYPE runs no trigger: the reader fails."""
    database.execute("CREATE TYPE mood AS ENUM ('happy')", "ALTER TABLE t ADD mood mood")
    async with reading(settings, schema_of(database)) as reader:
        database.execute(statement)
        failure = await end_of(reader)

    assert failure.code is ErrorCode.BACKEND_REJECTED
    assert "ALTER TYPE" in failure.detail


@pytest.mark.parametrize("trouble", [f"{SUCCESSOR}; {SWAP}", "DROP TABLE t"])
async def test_another_table_ends_the_reader(
    database: Database, settings: PostgresNotificationsSettings, trouble: str
) -> None:
    """If the name denotes another table or none, readers of the described table fail."""
    schema = schema_of(database)
    async with reading(settings, schema) as reader:
        database.execute(trouble)
        failure = await end_of(reader)

    assert (await refusal_of(settings, schema)).code is failure.code


async def test_nothing_is_kept_without_triggers(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """Without triggers rows are fetched and the feed has an error; with them rows are cached."""
    database.execute("INSERT INTO t VALUES (1, 'old')", "ALTER TABLE t DISABLE TRIGGER ALL")
    async with followed(database, settings) as dimension:
        await until(lambda: last_error(dimension) is not None)
        error = last_error(dimension)
        answers = [await note_of(dimension) for _ in range(2)]
        await asyncio.to_thread(make_triggers, database, "t", ["id"])
        await until_feed_is(dimension, FeedState.LIVE)
        answers += [await note_of(dimension) for _ in range(2)]

        assert last_error(dimension) is None
    assert answers == ["fetched old", "fetched old", "fetched old", "hit old"]
    assert error is not None
    assert SCRIPT in error


async def test_swapped_table_is_not_served(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """If another table takes the name, with or without triggers, cached rows are not served."""
    database.execute("INSERT INTO t VALUES (1, 'old')")
    async with followed(database, settings) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        before = [await note_of(dimension) for _ in range(2)]
        await asyncio.to_thread(database.execute, f"{SUCCESSOR}; {SWAP}")
        await asyncio.to_thread(make_triggers, database, "t", ["id"])
        await until_feed_is(dimension, FeedState.STARTING)
        after = [await note_of(dimension) for _ in range(2)]

    assert before == ["fetched old", "hit old"]
    assert after == ["fetched new", "fetched new"]


async def test_gap_keeps_rows_of_a_standby_out() -> None:
    """Rows of a standby are not cached until it has replayed all transactions of the gap (D23)."""
    with running_postgres() as server:  # a standby copies all databases of its server
        database = server.new_database()
        settings, schema = listened(database), schema_of(database)
        with running_standby(server) as socket_folder:
            standby = Database(socket_folder, database.name)
            standby.execute("SELECT pg_wal_replay_pause()")
            await standby.wait_for("pg_get_wal_replay_pause_state() = 'paused'")
            database.execute("INSERT INTO t VALUES (1, 'new')")
            async with PostgresNotifications(settings).reader(schema) as reader:
                await reader.assign(Split("notifications"), position=None)
                (piece,) = await reader.read()
            gap = gap_in(piece.changes).transaction_id
            ((written,),) = database.query("SELECT pg_current_wal_insert_lsn()")
            late = await fetched_of(standby)
            standby.execute("SELECT pg_wal_replay_resume()")
            # The last transaction of the gap may be the server's own.
            await standby.wait_for(f"pg_last_wal_replay_lsn() >= '{written}'")
            current = await fetched_of(standby)

    assert (late.rows.num_rows, may_be_kept(late, gap, piece)) == (0, False)
    assert may_be_kept(late, UNKNOWN_TRANSACTION, piece)
    assert (current.rows.num_rows, may_be_kept(current, gap, piece)) == (1, True)


async def fetched_of(database: Database) -> FetchedRows:
    """The row of key 1 with the snapshot of its query."""
    table = PostgresSettings(database.dsn(), "t", ("id",), is_followed=True)
    async with PostgresBackend(table) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = typed_keys_from_json([1], schema).columns
        return await backend.fetch(keys, timeout_s=PATIENCE_S)


def may_be_kept(fetched: FetchedRows, gap: int, piece: SplitPiece) -> bool:
    """Whether a row that was queried a minute after the gap of this piece may be cached."""
    changes = RecentChanges()
    assert piece.server is not None
    changes.relate(piece.server.ids_in(fetched.server.identity))
    changes.note_table(gap, 0.0, is_gap=True)
    any_key = np.zeros(1, np.uint64)
    return bool(changes.admits(any_key, fetched.snapshot, sent_at=60.0, now=60.0)[0])
