"""A sidecar whose topic also has events of other databases and servers: its rows stay its own."""

from collections.abc import Iterator

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from tests.integration.feeds.debezium_messages import Message
from tests.integration.feeds.followed_table import (
    NAMES,
    UNPROVED,
    FollowedTable,
    SourceTable,
    following,
)
from tests.integration.subscriptions import subscribed
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

HITS = [("hit", name) for name in NAMES.values()]
OTHER = {"id": 1, "name": "other", "note": None}
SEQUENCE = '["90000000000","90000000008"]'
HINT = "changelog.not_used"


@pytest.fixture
def planes(postgres_server: PostgresServer, kafka: KafkaBroker) -> Iterator[FollowedTable]:
    """A table of which all rows are loaded."""
    database = postgres_server.new_database()
    table = SourceTable(database.name, database, kafka.address)
    table.create()
    full = {table.name: table.dimension(cache=UNPROVED, server="shop")}
    with following([table], full) as (planes,):
        until(lambda: planes.look_up(*NAMES) == HITS)
        planes.wait_until_live()
        yield planes


def foreign_messages(planes: FollowedTable, **source: object) -> list[Message]:
    """A changed row, a deletion with its tombstone, and a truncation, of this source."""
    table, xid = planes.table.messages, planes.table.commit("SELECT 1")
    events = [
        table.upsert(OTHER, transaction_id=xid),
        table.deletion(2, transaction_id=xid),
        table.truncation(transaction_id=xid),
    ]
    changed, deleted, truncated = (
        table.foreign(each, sequence=SEQUENCE, **source) for each in events
    )
    return [changed, deleted, table.tombstone(2), truncated]


def own_event(planes: FollowedTable, key: int, name: str) -> Message:
    """The event of a row that gets this name, of the database that is read."""
    changed = planes.table.rename(key, name)
    return planes.table.messages.foreign(changed, db=planes.table.database.name, name="shop")


def test_foreign_events_change_no_row(planes: FollowedTable) -> None:
    """Events of another database change no row; the log names them once.

    The topic has events of the own database, too, so that the feed stays trusted.
    """
    planes.publish(own_event(planes, 1, "one"))
    planes.publish(*foreign_messages(planes, db="tenant2", name="shop"))
    after_foreign, state = planes.look_up(*NAMES), planes.feed()["state"]
    planes.publish(own_event(planes, 3, "third"))

    assert (after_foreign, state) == (HITS, "live")
    assert planes.look_up(*NAMES) == [*HITS[:2], ("hit", "third")]
    assert planes.log.count(HINT) == 1


def test_foreign_topic_is_named(planes: FollowedTable) -> None:
    """While only other databases report, the health names the setting; an event of ours ends that.

    Rows stay: an audit finds out whether changes are lost.
    """
    planes.publish(*foreign_messages(planes, db="publisher", name="shop"))
    kept, health = planes.look_up(*NAMES), planes.health()
    planes.publish(own_event(planes, 3, "third"))

    assert kept == HITS
    assert [(each["severity"], each["code"]) for each in health] == [("warning", "feed_unproved")]
    assert (
        '"publisher" are ignored; if it has the table, set changelog.database' in health[0]["text"]
    )
    until(lambda: planes.health() == [])


@pytest.fixture
def replica(followed_server: PostgresServer, kafka: KafkaBroker) -> Iterator[FollowedTable]:
    """A cached table that subscribes to the table of another database."""
    publisher, subscriber = followed_server.new_database(), followed_server.new_database()
    table = SourceTable(f"replica_{subscriber.name}", subscriber, kafka.address)
    table.create()
    publisher.execute(f"CREATE TABLE {table.name} (id int PRIMARY KEY, name text, note text)")
    with subscribed(subscriber, publisher, table.name), following([table]) as (planes,):
        yield planes


def test_subscribed_table_takes_its_publisher(replica: FollowedTable) -> None:
    """Events of a subscribed table may name another database: they drop their rows."""
    replica.keep(*NAMES)
    changed = replica.table.rename(1, "uno")

    replica.publish(replica.table.messages.foreign(changed, db="publisher"))

    assert replica.look_up(*NAMES) == [("fetched", "uno"), *HITS[1:]]
