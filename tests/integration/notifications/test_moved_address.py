"""Notifications and lookups of an address that moves while its former server lives on."""

import asyncio
from dataclasses import replace

import pytest

from lookup_core.statistics import InvalidationOrigin
from service.connectors.postgres import connections
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications import PostgresNotifications
from service.connectors.postgres.sessions import PostgresSettings
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.integration.lookups.tables import serving
from tests.integration.notifications.notified_changes import (
    IS_LISTENING,
    PATIENCE_S,
    TERMINATE,
    listened,
    note_of,
)
from tools.processes.postgres_server import Database, copied_server, running_postgres


async def until_noted(dimension: Dimension, expected: str) -> None:
    """Look key 1 up until this is its outcome and note; other keys are queried meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        for key in range(10, 10_000):
            if await note_of(dimension) == expected:
                return
            await note_of(dimension, key)
            await asyncio.sleep(0.01)


async def until_listening(dimension: Dimension, database: Database) -> None:
    """Query keys until the feed listens to this server."""
    async with asyncio.timeout(PATIENCE_S):
        key = 20_000
        while not database.query(f"SELECT FROM pg_stat_activity WHERE {IS_LISTENING}"):
            key += 1
            await note_of(dimension, key)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_listener_lost", [False, True], ids=["lookups first", "feed first"])
async def test_feed_and_lookups_move_together(
    monkeypatch: pytest.MonkeyPatch, *, is_listener_lost: bool
) -> None:
    """If lookups or the feed reach another server, the other one leaves the former server, too."""
    monkeypatch.setattr(connections, "RENEWAL_S", 0.0)
    monkeypatch.setattr(connections, "IDENTITY_S", 0.0)
    with running_postgres() as server, copied_server(server) as standby:
        database = server.new_database()
        settings = listened(database)
        database.execute("INSERT INTO t VALUES (1, 'old')")
        standby.start()
        addresses = [database.dsn()]
        moving = replace(settings, dsn_now=lambda: addresses[-1])
        sources = RefreshSources(
            lambda: PostgresNotifications(moving), InvalidationOrigin.NOTIFICATION
        )
        table = PostgresSettings(
            *(database.dsn(), "t", ("id",)),
            is_followed=True,
            max_connections=1,
            dsn_now=lambda: addresses[-1],
        )
        async with serving(PostgresBackend(table), sources=sources) as dimension:
            await until_noted(dimension, "hit old")
            standby.promote()
            promoted = standby.database(database.name)
            addresses.append(promoted.dsn())
            if is_listener_lost:
                database.execute(TERMINATE)
            await until_listening(dimension, promoted)
            await until_noted(dimension, "hit old")
            promoted.execute("UPDATE t SET note = 'new'")
            await until_noted(dimension, "hit new")
            former = database.query(f"SELECT FROM pg_stat_activity WHERE {IS_LISTENING}")

    assert former == []
