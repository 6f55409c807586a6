"""A sidecar that follows changelog topics: which cached rows each message drops."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic, delete_topic, enlarge_topic
from tests.integration.feeds.debezium_messages import NONSENSE, Message, heartbeat
from tests.integration.feeds.followed_table import (
    NAMES,
    PARTITIONS,
    Answer,
    FollowedTable,
    SourceTable,
    following,
    following_new_tables,
)
from tests.integration.feeds.kafka_reading import producing
from tests.integration.lookups.tables import changing
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

TABLES = 12  # at least one for each test
HELD_OFF_S = 5.0  # keys of a change without a transaction are not cached for this time
ROW = {"id": 1, "name": "one", "note": None}
HITS = [("hit", name) for name in NAMES.values()]

BURST_ROWS = 20_000
BURST_EVENTS = 5  # of each row
BATCH_BYTES = 512 * 1024
REQUEST_KEYS = 1000


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
@pytest.mark.parametrize("operation", ["c", "u"])
def test_changed_key_is_fetched_again(planes: FollowedTable, operation: str) -> None:
    """After an insert or update event its key is fetched once; values of the event are not used."""
    transaction_id = planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    row = {**ROW, "name": "of the event"}

    planes.publish(
        planes.table.messages.upsert(row, transaction_id=transaction_id, operation=operation)
    )
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


def test_replayed_changes_are_harmless(planes: FollowedTable) -> None:
    """Events that are repeated or reordered only cause another fetch of their keys (E7)."""
    older, newer = planes.table.rename(1, "eins"), planes.table.rename(1, "uno")

    planes.publish(older, newer, newer, partition=0)
    planes.publish(newer, older, partition=1)
    first = planes.look_up(1, 2)
    planes.keep(1, 2)  # as above
    second = planes.look_up(1, 2)

    assert (first, second) == ([("fetched", "uno"), HITS[1]], [("hit", "uno"), HITS[1]])


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
    assert unused_messages(planes) == {"ignored": 0, "undecodable": 1}


def test_messages_of_others_change_nothing(planes: FollowedTable) -> None:
    """Events of other tables and messages of the connector itself are ignored (E10, E19)."""
    other = replace(planes.table, name="others").messages
    transaction = b'{"status": "END", "id": "7", "event_count": 1, "data_collections": []}'

    planes.publish(
        other.upsert({**ROW, "name": "uno"}, transaction_id=7),
        other.truncation(transaction_id=7),
        heartbeat(),
        Message(b'{"id": "7"}', transaction),
    )

    assert planes.outcomes(*NAMES) == {"hit"}
    assert unused_messages(planes) == {"ignored": 4, "undecodable": 0}


def test_change_without_transaction_holds_off(planes: FollowedTable) -> None:
    """After a change without a transaction id, its key is not cached for 5 s (E20)."""
    planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    began_s = time.monotonic()

    planes.publish(planes.table.messages.upsert({**ROW, "name": "uno"}, transaction_id=None))
    first, others = planes.look_up(1), planes.look_up(2, 3)
    planes.keep(1)

    assert (first, others) == ([("fetched", "uno")], HITS[1:])
    assert time.monotonic() - began_s > HELD_OFF_S  # a lower bound, on any machine


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


def test_burst_of_changes_is_processed(postgres_server: PostgresServer, kafka: KafkaBroker) -> None:
    """During 100,000 events lookups are answered, and afterwards no old row is cached (E18)."""
    table = SourceTable("burst", postgres_server.new_database(), kafka.address)
    table.create({0: "old"})
    table.commit(
        f"INSERT INTO {table.name} SELECT n, 'old' FROM generate_series(1, {BURST_ROWS}) n"
    )
    with following([table]) as (planes,), ThreadPoolExecutor() as pool:
        for start in range(1, BURST_ROWS, REQUEST_KEYS):
            planes.keep(*range(start, start + REQUEST_KEYS))
        transaction_id = table.commit(f"UPDATE {table.name} SET name = 'new'")
        upsert = table.messages.upsert
        rows = [{"id": key, "name": "new", "note": None} for key in range(1, BURST_ROWS + 1)]
        events = [upsert(row, transaction_id=transaction_id) for row in rows] * BURST_EVENTS

        processing = pool.submit(lambda: planes.wait_until_read(asyncio.run(_write(table, events))))
        answered = 0
        while not processing.done():
            assert planes.outcomes(*range(1, 11)) <= {"hit", "fetched"}
            answered += not processing.done()
        processing.result()

        assert answered > 0
        assert {name for _, name in planes.look_up(*range(1, BURST_ROWS + 1))} == {"new"}


async def _write(table: SourceTable, events: list[Message]) -> dict[str, int]:
    """Write the events in large batches; return the ends of the partitions."""
    async with producing(table.brokers, max_batch_size=BATCH_BYTES) as producer:
        for partition in range(PARTITIONS):
            await _write_partition(producer, table.name, partition, events[partition::PARTITIONS])
    size = len(events) // PARTITIONS
    return {f"{table.name}-{partition}": size for partition in range(PARTITIONS)}


async def _write_partition(
    producer: AIOKafkaProducer, topic: str, partition: int, events: list[Message]
) -> None:
    sent, batch = [], producer.create_batch()
    for event in events:
        if batch.append(key=event.key, value=event.value, timestamp=None) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=event.key, value=event.value, timestamp=None)
    sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)


def undecodable_log(planes: FollowedTable) -> list[dict[str, object]]:
    """The log lines on undecodable messages of the topic."""
    lines = [json.loads(line) for line in planes.log.splitlines()]
    event = ("changelog.not_understood", planes.name)
    return [line for line in lines if (line["event"], line.get("topic")) == event]


def unused_messages(planes: FollowedTable) -> dict[str, float]:
    """The number of messages without a change, by reason."""
    name = "sidelook_dimension_feed_unused_messages_total"
    return {reason: planes.metric(name, reason=reason) for reason in ("ignored", "undecodable")}
