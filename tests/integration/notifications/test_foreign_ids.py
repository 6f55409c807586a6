"""Notifications of one server, and rows of another one: transaction ids that prove nothing."""

import time
from collections.abc import Iterator

import pytest

from lookup_core.freshness.feed_health import FeedState
from lookup_core.statistics import InvalidationOrigin
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications import PostgresNotifications
from service.connectors.postgres.sessions import PostgresSettings
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.integration.lookups.tables import serving
from tests.integration.notifications.notified_changes import listened, note_of, notifications_of
from tests.service.engine.refreshing import Clock, until, until_feed_is
from tools.processes.postgres_server import Database, copied_server, running_postgres

USE_IDS = "DO $$ BEGIN FOR i IN 1..500 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
HOLD_OFF_S = 5.0


@pytest.fixture
def databases() -> Iterator[tuple[Database, Database]]:
    """A database, and that of a promoted copy of its server, which has used more ids."""
    with running_postgres() as server:
        database = server.new_database()
        listened(database)
        database.execute("INSERT INTO t VALUES (1, 'old')")
        with copied_server(server) as copy:
            copy.start()
            copy.promote()
            clone = copy.database(database.name)
            clone.execute(USE_IDS)
            yield database, clone


async def pass_hold_off(dimension: Dimension, clock: Clock) -> None:
    """Let the hold-off pass; the clock jumps, so that the feed has to prove itself again."""
    clock.ahead_s += HOLD_OFF_S
    since_ms = time.time() * 1000

    def has_proof() -> bool:
        feed = dimension.refresh_statistics().feed
        assert feed is not None
        return feed.state is FeedState.LIVE and feed.watermark_ms > since_ms

    await until(has_proof)


@pytest.mark.parametrize("is_foreign", [True, False], ids=["clone", "own server"])
async def test_foreign_ids_are_no_proof(
    databases: tuple[Database, Database], *, is_foreign: bool
) -> None:
    """Ids of another server that look old cache no row before the hold-off; own ids do at once."""
    database, clone = databases
    read = clone if is_foreign else database
    feed = PostgresNotifications(notifications_of(database))
    sources = RefreshSources(lambda: feed, InvalidationOrigin.NOTIFICATION)
    table, clock = PostgresSettings(read.dsn(), "t", ("id",), is_followed=True), Clock()

    async with serving(PostgresBackend(table), sources=sources, clock=clock) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        await pass_hold_off(dimension, clock)  # after the gap before the connection
        before = [await note_of(dimension) for _ in range(2)]
        database.execute("UPDATE t SET note = 'new'")
        await until(lambda: dimension.statistics().cache.rows == 0)
        changed = [await note_of(dimension) for _ in range(2)]
        clone.execute("UPDATE t SET note = 'new'")  # as by replication
        await pass_hold_off(dimension, clock)
        after = [await note_of(dimension) for _ in range(2)]

    assert before == ["fetched old", "hit old"]
    if is_foreign:
        assert (changed, after) == (["fetched old"] * 2, ["fetched new", "hit new"])
    else:
        assert (changed, after) == (["fetched new", "hit new"], ["hit new"] * 2)
