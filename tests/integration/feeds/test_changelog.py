"""A sidecar that follows changelog topics: which cached rows each message drops."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic, delete_topic, enlarge_topic
from tests.integration.feeds.debezium_messages import NONSENSE, Message, heartbeat
from tests.integration.feeds.followed_table import (
    NAMES,
    UNPROVED,
    Answer,
    FollowedTable,
    SourceTable,
    following,
    following_new_tables,
)
from tests.integration.lookups.tables import changing
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

TABLES = 8  # at least one for each test
ROW = {"id": 1, "name": "one", "note": None}
HITS = [("hit", name) for name in NAMES.values()]


@pytest.fixture(scope="module")
def unused(postgres_server: PostgresServer, kafka: KafkaBroker) -> Iterator[list[FollowedTable]]:
    """Tables that one sidecar follows and no test has used."""
    with following_new_tables(postgres_server, kafka.address, TABLES) as followed:
        yield followed


@pytest.fixture
def planes(unused: list[FollowedTable]) -> FollowedTable:
    """A table of this test, whose rows are cached."""
    planes = unused.pop()
    planes.keep(*NAMES)
    return planes


@pytest.mark.real_path
def test_changed_key_is_fetched_again(planes: FollowedTable) -> None:
    """After an update event its key is fetched once; values of the event are not used."""
    transaction_id = planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    row = {**ROW, "name": "of the event"}

    planes.publish(planes.table.messages.upsert(row, transaction_id=transaction_id))
    first = planes.look_up(*NAMES)
    planes.keep(*NAMES)  # ids of an unknown system have a hold-off
    second = planes.look_up(*NAMES)

    assert first == [("fetched", "uno"), *HITS[1:]]
    assert second == [("hit", "uno"), *HITS[1:]]


@pytest.mark.parametrize(
    ("statement", "event", "expected"),
    [
        pytest.param(
            "DELETE FROM {} WHERE id = 3",
            lambda table, xid: table.messages.upsert(ROW, transaction_id=xid, operation="r"),
            [("fetched", "one"), ("fetched", "two"), ("missing", None)],
            id="new snapshot (E17)",
        ),
        pytest.param(
            "DELETE FROM {} WHERE id = 1",
            lambda table, _: table.messages.tombstone(1),
            [("missing", None), *HITS[1:]],
            id="tombstone (E8)",
        ),
        pytest.param(
            "TRUNCATE {}",
            lambda table, xid: table.messages.truncation(transaction_id=xid),
            [("missing", None)] * 3,
            id="truncation (E9)",
        ),
    ],
)
def test_event_drops_its_rows(
    planes: FollowedTable,
    statement: str,
    event: Callable[[SourceTable, int], Message],
    expected: list[Answer],
) -> None:
    """A tombstone drops its key; a truncation or another snapshot drops all rows."""
    transaction_id = planes.table.commit(statement.format(planes.name))

    planes.publish(event(planes.table, transaction_id), partition=1)

    assert planes.look_up(*NAMES) == expected


def test_change_before_its_commit_is_not_missed(planes: FollowedTable) -> None:
    """If an event precedes the visibility of its commit, the former row is not cached (H1)."""
    statement = f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1"
    with changing(planes.table.database, statement) as transaction_id:
        planes.publish(
            planes.table.messages.upsert({**ROW, "name": "uno"}, transaction_id=transaction_id)
        )
        early = [planes.look_up(1), planes.look_up(1)]
    late = [planes.look_up(1)]
    fenced = planes.metric("sidelook_fenced_keys_total")
    planes.keep(1)
    late.append(planes.look_up(1))

    assert early == [[("fetched", "one")], [("fetched", "one")]]
    assert late == [[("fetched", "uno")], [("hit", "uno")]]
    assert fenced == 3  # the first late one is within the hold-off


def test_undecodable_message_forgets_all(planes: FollowedTable) -> None:
    """An undecodable message drops all rows, is logged and counted, and stops nothing (E14)."""
    planes.publish(NONSENSE)
    dropped = planes.look_up(*NAMES)
    planes.keep(*NAMES)
    planes.publish(planes.table.rename(1, "uno"))

    assert dropped == [("fetched", name) for name in NAMES.values()]
    assert planes.look_up(1, 2) == [("fetched", "uno"), HITS[1]]
    (line,) = undecodable_log(planes)
    assert (line["offset"], line["messages"]) == (0, 1)
    assert "s3cret" not in planes.log
    name = "sidelook_dimension_feed_unused_messages_total"
    assert planes.metric(name, reason="undecodable") == 1


def test_added_partition_counts(planes: FollowedTable) -> None:
    """A new partition is found and read from its first message (E5)."""
    asyncio.run(enlarge_topic(planes.table.brokers, planes.name, partitions=3))
    ends = planes.table.send(planes.table.rename(1, "uno"), partition=2)

    planes.wait_until_read(ends)

    assert planes.look_up(1, 2) == [("fetched", "uno"), HITS[1]]


def test_recreated_topic_forgets_all(planes: FollowedTable) -> None:
    """If the topic is deleted and created again, all rows are dropped; the new one counts (E4)."""
    planes.publish(*[heartbeat()] * 3)
    asyncio.run(delete_topic(planes.table.brokers, planes.name))
    planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    asyncio.run(create_topic(planes.table.brokers, planes.name, partitions=2))
    planes.table.send(*[heartbeat()] * 4)  # more messages than the former topic

    until(lambda: planes.outcomes(*NAMES) == {"fetched"})
    planes.wait_until_live()
    planes.keep(*NAMES)
    planes.publish(planes.table.rename(2, "due"))

    assert planes.look_up(*NAMES) == [("hit", "uno"), ("fetched", "due"), HITS[2]]


def undecodable_log(planes: FollowedTable) -> list[dict[str, object]]:
    """The log lines on undecodable messages of the topic."""
    lines = [json.loads(line) for line in planes.log.splitlines()]
    event = ("changelog.not_understood", planes.name)
    return [line for line in lines if (line["event"], line.get("topic")) == event]


@pytest.fixture(scope="module")
def whole_tables(
    postgres_server: PostgresServer, kafka: KafkaBroker
) -> Iterator[list[FollowedTable]]:
    """Two tables that a sidecar holds in full: by Debezium's events, and by flattened ones."""
    database = postgres_server.new_database()
    formats = ("debezium_json", "upsert_json")
    tables = [SourceTable(f"{database.name}_{each}", database, kafka.address) for each in formats]
    dimensions = {}
    for table, each in zip(tables, formats, strict=True):
        table.create()
        dimensions[table.name] = table.dimension(cache=UNPROVED, format=each)
    with following(tables, dimensions) as planes:
        yield planes


def test_row_events_are_applied(whole_tables: list[FollowedTable]) -> None:
    """In full mode, inserts, updates and deletions are visible without a query."""
    planes = whole_tables[0]
    first = planes.look_up(1, 2, 3, 4)
    insertion = planes.table.commit(f"INSERT INTO {planes.name} VALUES (4, 'four')")
    deletion = planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 3")
    messages = planes.table.messages
    row = {"id": 4, "name": "four", "note": None}

    planes.publish(planes.table.rename(1, "uno"))
    planes.publish(messages.upsert(row, transaction_id=insertion, operation="c"), partition=1)
    planes.publish(messages.deletion(3, transaction_id=deletion), messages.tombstone(3))

    assert first == [*HITS, ("missing", None)]
    assert planes.look_up(1, 2, 3, 4) == [
        *(("hit", "uno"), HITS[1], ("missing", None), ("hit", "four"))
    ]
    assert planes.metric("sidelook_backend_queries_total") == 0


def test_flattened_events_restore_no_row(whole_tables: list[FollowedTable]) -> None:
    """Rewritten deletions and placeholders of flattened events are queried, not served."""
    planes = whole_tables[1]
    planes.keep(*NAMES)
    planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 1")
    planes.table.commit(f"UPDATE {planes.name} SET name = 'tres' WHERE id = 3")

    planes.publish(
        flattened(1, "one", __deleted="true"),
        flattened(2, "__debezium_unavailable_value"),
        flattened(3, "tres"),
    )

    assert planes.look_up(*NAMES) == [("missing", None), ("fetched", "two"), ("hit", "tres")]


def flattened(key: int, name: str, **marks: object) -> Message:
    """A message of ExtractNewRecordState."""
    row = {"id": key, "name": name, "note": None, **marks}
    return Message(json.dumps({"id": key}).encode(), json.dumps(row).encode())
