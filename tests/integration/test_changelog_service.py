"""A whole sidecar that follows topics of Kafka: what of its cache outlives which message."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic, delete_topic, enlarge_topic
from tests.integration.changelog_sidecar import changelog_sidecar
from tests.integration.debezium_messages import NONSENSE, Message, heartbeat
from tests.integration.told_table import NAMES, FollowedTable, ToldTable
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

TABLES = 13  # one for each test
FOUND_WITHIN_S = 20.0  # brokers are asked for partitions every 10 s
HELD_OFF_S = 5.0  # in which what no transaction proves is not kept


@pytest.fixture(scope="module")
def unused(postgres_server: PostgresServer, kafka: KafkaBroker) -> Iterator[list[FollowedTable]]:
    """Tables that one sidecar follows, and that no test has used."""
    database = postgres_server.new_database()
    tables = [ToldTable(f"told_{number}", database, kafka.address) for number in range(TABLES)]
    for table in tables:
        table.create()
    with changelog_sidecar({table.name: table.dimension() for table in tables}) as sidecar:
        yield [FollowedTable(table, sidecar) for table in tables]


@pytest.fixture
def planes(unused: list[FollowedTable]) -> FollowedTable:
    """A table of this test, all of whose rows are in the cache."""
    planes = unused.pop()
    planes.keep(*NAMES)
    return planes


@pytest.mark.real_path
@pytest.mark.parametrize("operation", ["c", "u"])
def test_told_change_is_read_anew(planes: FollowedTable, operation: str) -> None:
    """An insert or an update: its key is fetched once, all others stay."""
    transaction_id = planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    row = {"id": 1, "name": "not believed", "note": None}
    event = planes.table.messages.upsert(row, transaction_id=transaction_id, operation=operation)

    planes.tell(event)
    first, second = planes.look_up(*NAMES), planes.look_up(*NAMES)

    assert first == [("fetched", "uno"), ("hit", "two"), ("hit", "three")]
    assert second == [("hit", "uno"), ("hit", "two"), ("hit", "three")]


def test_new_snapshot_forgets_all(planes: FollowedTable) -> None:
    """A connector that reads all rows anew has lost its slot: nobody told what is gone (E17)."""
    transaction_id = planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 3")
    row = {"id": 1, "name": "one", "note": None}
    read = planes.table.messages.upsert(row, transaction_id=transaction_id, operation="r")

    planes.tell(read)

    assert planes.look_up(*NAMES) == [("fetched", "one"), ("fetched", "two"), ("missing", None)]


def test_replayed_changes_are_harmless(planes: FollowedTable) -> None:
    """Events that come twice, or in another order, only let their keys be read once more (E7)."""
    older, newer = planes.table.rename(1, "eins"), planes.table.rename(1, "uno")

    planes.tell(older, newer, newer, partition=0)
    planes.tell(newer, older, partition=1)
    first, second = planes.look_up(1, 2), planes.look_up(1, 2)

    assert first == [("fetched", "uno"), ("hit", "two")]
    assert second == [("hit", "uno"), ("hit", "two")]


def test_change_before_its_commit_is_not_missed(planes: FollowedTable) -> None:
    """Of an event that comes too early, the former row is answered, and not kept (hazard H1)."""
    statement = f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1"
    with planes.table.changing(statement) as transaction_id:
        row = {"id": 1, "name": "uno", "note": None}
        planes.tell(planes.table.messages.upsert(row, transaction_id=transaction_id))
        early = [planes.look_up(1), planes.look_up(1)]
    late = [planes.look_up(1), planes.look_up(1)]

    assert early == [[("fetched", "one")], [("fetched", "one")]]
    assert late == [[("fetched", "uno")], [("hit", "uno")]]
    assert planes.sidecar.figure("sidelook_fenced_keys_total", dimension=planes.name) == 2


def test_tombstone_alone_is_a_change(planes: FollowedTable) -> None:
    """Where compaction took the deletion away, the key of its tombstone counts (E8)."""
    planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 1")

    planes.tell(planes.table.messages.tombstone(1))

    assert planes.look_up(1, 2) == [("missing", None), ("hit", "two")]


def test_truncation_forgets_all(planes: FollowedTable) -> None:
    """It has no key, and concerns the rows of all partitions (E9)."""
    transaction_id = planes.table.commit(f"TRUNCATE {planes.name}")

    planes.tell(planes.table.messages.truncation(transaction_id=transaction_id), partition=1)

    assert planes.look_up(*NAMES) == [("missing", None)] * 3


def test_undecodable_message_forgets_all(planes: FollowedTable) -> None:
    """Nobody knows whose change it was; it is logged, counted, and not the last one (E14)."""
    planes.tell(NONSENSE)
    doubted = planes.look_up(*NAMES)
    planes.keep(*NAMES)
    planes.tell(planes.table.rename(1, "uno"))

    assert doubted == [("fetched", name) for name in NAMES.values()]
    assert planes.look_up(1, 2) == [("fetched", "uno"), ("hit", "two")]
    (line,) = logged(planes, "changelog.not_understood")
    assert (line["offset"], line["messages"]) == (0, 1)
    assert "s3cret" not in planes.sidecar.log
    assert unused_messages(planes) == {"ignored": 0, "undecodable": 1}


def test_message_beyond_the_limit_forgets_all(planes: FollowedTable) -> None:
    """Ten megabytes in a small batch are not read as JSON, however right they are (E15)."""
    row = {"id": 1, "name": "one", "note": "x" * 10_000_000}
    event = planes.table.messages.upsert(row, transaction_id=7)

    planes.tell(event, compression_type="gzip", max_request_size=20_000_000)

    assert planes.outcomes(*NAMES) == {"fetched"}
    (line,) = logged(planes, "changelog.not_understood")
    assert "more than 8388608" in str(line["reason"])


def test_messages_of_others_change_nothing(planes: FollowedTable) -> None:
    """Another table's events and the connector's own messages are passed over (E10, E19)."""
    other = replace(planes.table, name="others").messages
    transaction = Message(
        b'{"id": "7"}', b'{"status": "END", "id": "7", "event_count": 1, "data_collections": []}'
    )

    planes.tell(
        other.upsert({"id": 1, "name": "uno", "note": None}, transaction_id=7),
        other.truncation(transaction_id=7),
        heartbeat(),
        transaction,
    )

    assert planes.outcomes(*NAMES) == {"hit"}
    assert unused_messages(planes) == {"ignored": 4, "undecodable": 0}


def test_change_without_transaction_holds_off(planes: FollowedTable) -> None:
    """Where no transaction proves what a read saw, its key is not kept for 5 s (E20)."""
    planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    row = {"id": 1, "name": "uno", "note": None}
    began_s = time.monotonic()  # before the change is told: it is held off from then on

    planes.tell(planes.table.messages.upsert(row, transaction_id=None))
    first, others = planes.look_up(1), planes.look_up(2, 3)
    until(lambda: planes.outcomes(1) == {"hit"})
    held_off_s = time.monotonic() - began_s

    assert first == [("fetched", "uno")]
    assert others == [("hit", "two"), ("hit", "three")]
    assert held_off_s > HELD_OFF_S


def test_added_partition_counts(planes: FollowedTable) -> None:
    """What is told in a partition that is new is heard, from its first message on (E5)."""
    asyncio.run(enlarge_topic(planes.table.brokers, planes.name, partitions=3))
    ends = planes.table.send(planes.table.rename(1, "uno"), partition=2)

    until(lambda: len(planes.sidecar.positions(planes.name)) == 3, within_s=FOUND_WITHIN_S)
    planes.wait_until_read(ends)

    assert planes.look_up(1, 2) == [("fetched", "uno"), ("hit", "two")]


def test_recreated_topic_forgets_all(planes: FollowedTable) -> None:
    """Nobody knows what the former one still had to tell; the new one is followed (E3, E4)."""
    planes.tell(*[heartbeat()] * 3)
    asyncio.run(delete_topic(planes.table.brokers, planes.name))
    planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    asyncio.run(create_topic(planes.table.brokers, planes.name, partitions=2))
    planes.table.send(*[heartbeat()] * 4)  # more than the former one had

    until(lambda: planes.outcomes(*NAMES) == {"fetched"}, within_s=FOUND_WITHIN_S)
    planes.sidecar.wait_until_live(planes.name)
    planes.keep(*NAMES)
    planes.tell(planes.table.rename(2, "due"))

    assert planes.look_up(*NAMES) == [("hit", "uno"), ("fetched", "due"), ("hit", "three")]


def logged(planes: FollowedTable, event: str) -> list[dict[str, object]]:
    """What was logged of the table's topic under this name."""
    lines = [json.loads(line) for line in planes.sidecar.log.splitlines()]
    return [line for line in lines if (line["event"], line.get("topic")) == (event, planes.name)]


def unused_messages(planes: FollowedTable) -> dict[str, float]:
    """How many messages told no change of a row, by why."""
    name = "sidelook_dimension_feed_unused_messages_total"
    return {
        reason: planes.sidecar.figure(name, dimension=planes.name, reason=reason)
        for reason in ("ignored", "undecodable")
    }
