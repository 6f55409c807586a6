"""Triggers that are missing, switched off or of another table: nothing cached is believed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from lookup_core.answer import Outcome
from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.change_fence import RecentChanges
from lookup_core.freshness.feed_health import FeedState
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.statistics import InvalidationOrigin
from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import PostgresNotifications
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.integration.notified_changes import (
    PATIENCE_S,
    SCHEMA,
    failure_of,
    gap_of,
    listened,
    read_until,
    reading,
    schema_of,
)
from tests.integration.trigger_messages import make_triggers
from tests.service.engine import running
from tests.service.engine.refreshing import until, until_feed_is
from tools.processes.postgres_server import Database, running_postgres, running_standby

ALL = "Changes_insert, Changes_update, Changes_delete, Changes_truncate"
SCRIPT = "python -m service gen-triggers planes"
REMEDY = f"run the output of `{SCRIPT}`"
ANOTHER = "t: the table was dropped or replaced; its schema will be read again"
SUCCESSOR = "CREATE TABLE successor (LIKE t INCLUDING ALL); INSERT INTO successor VALUES (1, 'new')"
SWAP = "BEGIN; ALTER TABLE t RENAME TO former; ALTER TABLE successor RENAME TO t; COMMIT"


@pytest.fixture
def settings(database: Database) -> PostgresNotificationsSettings:
    """How changes of a table `t` are heard, which has its triggers."""
    return replace(listened(database), script=SCRIPT)


@asynccontextmanager
async def followed(
    database: Database, settings: PostgresNotificationsSettings
) -> AsyncIterator[Dimension]:
    """A dimension of the table, with a cache and the feed."""
    feed = PostgresNotifications(settings)
    sources = RefreshSources(lambda: feed, InvalidationOrigin.NOTIFICATION)
    table = PostgresSettings(database.dsn(), "t", ("id",), is_followed=True)
    async with PostgresBackend(table) as backend:
        dimension = Dimension(running.settings(), backend, sources=sources)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(dimension.run())
            await dimension.wait_until_described(PATIENCE_S)
            yield dimension
            task.cancel()


async def note_of_1(dimension: Dimension) -> str:
    """How a lookup of the key is answered."""
    keys = typed_keys_from_json([1], SCHEMA)
    (answer,) = await dimension.lookup(keys, columns=["note"], timeout_s=PATIENCE_S)
    assert answer.rows is not None
    return f"{Outcome(answer.outcomes[0]).label} {answer.rows['note'][0]}"


def last_error(dimension: Dimension) -> str | None:
    """Why the feed does not live."""
    feed = dimension.refresh_statistics().feed
    return None if feed is None else feed.last_error


async def test_forgotten_triggers_refuse_the_reader(database: Database) -> None:
    """Without them nobody would ever be told anything, and that looks like a table at rest."""
    settings = replace(listened(database), script=SCRIPT, channel="other")

    failure = await failure_of(settings, schema_of(settings))

    assert failure.code is ErrorCode.BACKEND_REJECTED
    assert failure.detail == f"t: triggers missing or not ENABLE ALWAYS: {ALL}; {REMEDY}".replace(
        "Changes", "other"
    )


@pytest.mark.parametrize(
    ("trouble", "missing"),
    [
        ("ALTER TABLE t DISABLE TRIGGER ALL", ALL),
        ('ALTER TABLE t ENABLE REPLICA TRIGGER "Changes_delete"', "Changes_delete"),
        ('DROP TRIGGER "Changes_insert" ON t', "Changes_insert"),
        ('ALTER TRIGGER "Changes_truncate" ON t RENAME TO other', "Changes_truncate"),
    ],
)
async def test_triggers_that_go_end_the_reader(
    database: Database, settings: PostgresNotificationsSettings, trouble: str, missing: str
) -> None:
    """What is missing is told with what makes it, soon after it went, and again by a new reader."""
    async with reading(settings) as reader:
        database.execute(trouble)
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)
    again = await failure_of(settings, schema_of(settings))

    expected = f"t: triggers missing or not ENABLE ALWAYS: {missing}; {REMEDY}"
    assert (failure.value.detail, again.detail) == (expected, expected)


async def test_triggers_that_were_off_end_the_reader(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A bulk load with triggers disabled is told by nobody; the next reader tells of the gap."""
    async with reading(settings) as reader:
        database.execute(
            "BEGIN; ALTER TABLE t DISABLE TRIGGER USER; INSERT INTO t VALUES (1)",
            *(f'ALTER TABLE t ENABLE ALWAYS TRIGGER "{name}"' for name in ALL.split(", ")),
            "COMMIT",
        )
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)
    async with reading(settings):
        pass

    assert failure.value.detail == (
        "t: triggers were recreated, or disabled for a time; changes are lost"
    )


@pytest.mark.parametrize("trouble", [f"{SUCCESSOR}; {SWAP}", "DROP TABLE t"])
async def test_another_table_ends_the_reader(
    database: Database, settings: PostgresNotificationsSettings, trouble: str
) -> None:
    """Triggers of the table that was described do not tell of one that has its name now."""
    schema = schema_of(settings)
    async with reading(settings) as reader:
        database.execute(trouble)
        with pytest.raises(BackendError) as failure:
            await read_until(reader, lambda _: False)
    again = await failure_of(settings, schema)

    assert (failure.value.detail, again.detail) == (ANOTHER, ANOTHER)


async def test_nothing_is_kept_without_triggers(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """Lookups are fetched, and why is told, until the triggers are there: then rows are kept."""
    database.execute("INSERT INTO t VALUES (1, 'old')", "ALTER TABLE t DISABLE TRIGGER ALL")
    async with followed(database, settings) as dimension:
        await until(lambda: last_error(dimension) is not None)
        error = last_error(dimension)
        answers = [await note_of_1(dimension) for _ in range(2)]
        await asyncio.to_thread(make_triggers, database, "t", ["id"])
        await until_feed_is(dimension, FeedState.LIVE)
        answers += [await note_of_1(dimension) for _ in range(2)]

        assert last_error(dimension) is None
    assert answers == ["fetched old", "fetched old", "fetched old", "hit old"]
    assert error == f"backend_rejected: t: triggers missing or not ENABLE ALWAYS: {ALL}; {REMEDY}"


async def test_swapped_table_is_not_served_from_the_cache(
    database: Database, settings: PostgresNotificationsSettings
) -> None:
    """A table put in another's place is noticed with the next heartbeat, triggers or not."""
    database.execute("INSERT INTO t VALUES (1, 'old')")
    async with followed(database, settings) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        before = [await note_of_1(dimension) for _ in range(2)]
        await asyncio.to_thread(database.execute, f"{SUCCESSOR}; {SWAP}")
        await asyncio.to_thread(make_triggers, database, "t", ["id"])
        await until_feed_is(dimension, FeedState.STARTING)
        after = [await note_of_1(dimension) for _ in range(2)]

    assert before == ["fetched old", "hit old"]
    assert after == ["fetched new", "fetched new"]


async def test_gap_keeps_rows_of_a_lagging_standby_out() -> None:
    """What changed before somebody listened may be missing on a standby long after that."""
    with running_postgres() as server:  # of its own: a standby copies all databases of its server
        database = server.new_database()
        settings = listened(database)
        with running_standby(server) as socket_folder:
            standby = Database(socket_folder, database.name)
            standby.execute("SELECT pg_wal_replay_pause()")
            await standby.wait_for("pg_get_wal_replay_pause_state() = 'paused'")
            database.execute("INSERT INTO t VALUES (1, 'new')")
            gap = await gap_of(settings)
            ((written,),) = database.query("SELECT pg_current_wal_insert_lsn()")
            late = await fetched_of(standby)
            standby.execute("SELECT pg_wal_replay_resume()")
            # All of it: the gap's last transaction may be one of the server's own.
            await standby.wait_for(f"pg_last_wal_replay_lsn() >= '{written}'")
            current = await fetched_of(standby)

    assert (late.rows.num_rows, may_be_kept(late, gap.transaction_id)) == (0, False)
    assert may_be_kept(late, UNKNOWN_TRANSACTION)  # so that it would have stayed for ever
    assert (current.rows.num_rows, may_be_kept(current, gap.transaction_id)) == (1, True)


async def fetched_of(database: Database) -> FetchedRows:
    """The row of the key, and what its read saw."""
    table = PostgresSettings(database.dsn(), "t", ("id",), is_followed=True)
    async with PostgresBackend(table) as backend:
        schema = await backend.describe(timeout_s=PATIENCE_S)
        keys = typed_keys_from_json([1], schema).columns
        return await backend.fetch(keys, timeout_s=PATIENCE_S)


def may_be_kept(fetched: FetchedRows, gap: int) -> bool:
    """Whether a row is kept that was asked for a minute after something was lost."""
    changes = RecentChanges()
    changes.note_table(gap, 0.0)
    any_key = np.zeros(1, np.uint64)
    return bool(changes.admits(any_key, fetched.snapshot, sent_at=60.0, now=60.0)[0])
