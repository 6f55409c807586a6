"""Triggers of a table that a subscription fills: only those of rows run for replicated rows."""

import pytest

from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.notifications.notified_changes import (
    PATIENCE_S,
    changed_ids,
    notifications_of,
    read_until,
    reading,
)
from tests.integration.notifications.trigger_messages import make_triggers
from tests.integration.subscriptions import subscribed
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

TABLE = "CREATE TABLE t (id int PRIMARY KEY, note text)"
PARTED = (f"{TABLE} PARTITION BY LIST (id)", "CREATE TABLE part PARTITION OF t DEFAULT")
SUBSCRIBED = (
    "t is filled by a subscription, which fires no triggers of statements; follow the publisher"
    " with refresh.changelog, or remove refresh.listen"
)


@pytest.mark.parametrize(
    ("statements", "ids", "doubt"), [((TABLE,), [2], SUBSCRIBED), (PARTED, [1, 2], None)]
)
async def test_unreported_replication_raises_doubt(
    followed_server: PostgresServer, statements: tuple[str, ...], ids: list[int], doubt: str | None
) -> None:
    """A feed whose triggers do not run for replicated rows says so; partitions report such rows."""
    publisher, subscriber = followed_server.new_database(), followed_server.new_database()
    publisher.execute(TABLE)
    subscriber.execute(*statements)
    make_triggers(subscriber, "t", ["id"], is_partitioned=statements is PARTED)
    with subscribed(subscriber, publisher, "t", is_running=True):
        async with PostgresBackend(PostgresSettings(subscriber.dsn(), "t", ("id",))) as backend:
            schema = await backend.describe(timeout_s=PATIENCE_S)
        async with reading(notifications_of(subscriber), schema) as reader:
            publisher.execute("INSERT INTO t VALUES (1, 'replicated')")
            until(lambda: subscriber.query("SELECT id FROM t") == [(1,)])
            subscriber.execute("INSERT INTO t VALUES (2, 'own')")
            pieces = await read_until(reader, lambda piece: 2 in changed_ids([piece]))

    assert (changed_ids(pieces), {piece.doubt for piece in pieces}) == (ids, {doubt})
