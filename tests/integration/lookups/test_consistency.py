"""Lookups while their table changes; docs/explanation/consistency.md names these tests."""

import pyarrow as pa
import pytest

from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.hand_clock import HandClock
from tests.integration.lookups.tables import put_table, serving
from tests.service.engine.running import lookup
from tools.processes.postgres_server import Database

ROWS = pa.table({"id": pa.array([7, 8]), "name": ["Ada", "Bert"]})
TTL_S = 600.0
MARRY = "UPDATE dimension SET name = name || ' Smith'"


@pytest.fixture
def table(database: Database) -> PostgresSettings:
    """A table in which 7 is Ada and 8 is Bert."""
    return put_table(database, ROWS, key=["id"])


async def test_unannounced_change_shows_at_expiry(
    table: PostgresSettings, database: Database
) -> None:
    """Without a change feed, a cached row is served until its TTL ends."""
    clock = HandClock(1000.0)
    async with serving(PostgresBackend(table), clock=clock) as dimension:
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        database.execute(MARRY)

        clock.now_s += TTL_S - 1
        assert await lookup(dimension, 7) == {0: "hit Ada"}
        clock.now_s += 1
        assert await lookup(dimension, 7) == {0: "fetched Ada Smith"}


async def test_rows_of_a_transaction_may_be_seen_half(
    table: PostgresSettings, database: Database
) -> None:
    """One lookup may return a cached row and a row of a later transaction."""
    async with serving(PostgresBackend(table)) as dimension:
        await lookup(dimension, 7)
        database.execute(MARRY)

        assert await lookup(dimension, 7, 8) == {0: "hit Ada", 1: "fetched Bert Smith"}
