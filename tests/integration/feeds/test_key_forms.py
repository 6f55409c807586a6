"""A sidecar whose topic has other messages than those of the JSON converter."""

import asyncio
import json
from typing import Any

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.feeds.debezium_messages import Message
from tests.integration.feeds.followed_table import (
    UNPROVED,
    FollowedTable,
    SourceTable,
    following,
    following_new_tables,
)
from tools.processes.postgres_server import PostgresServer
from tools.processes.until import until

CODES = ("OSL", "123", "true", "null", "JFK")
CONVERTER = "key.converter=org.apache.kafka.connect.json.JsonConverter"


def test_plain_text_keys_drop_one_row(postgres_server: PostgresServer, kafka: KafkaBroker) -> None:
    """A key that is a plain text, also one that JSON reads otherwise, drops its row only."""
    table = SourceTable("airports", postgres_server.new_database(), kafka.address)
    table.database.execute("CREATE TABLE airports (code text PRIMARY KEY, name text)")
    table.database.insert(table.name, [(code, "old") for code in CODES])
    asyncio.run(create_topic(kafka.address, table.name))
    config = table.dimension(format="upsert_json") | {"key": ["code"]}
    with following([table], {table.name: config}) as (airports,):
        until(lambda: outcomes(airports) == ["hit"] * len(CODES))
        messages = [
            Message(code.encode(), json.dumps({"code": code, "name": "new"}).encode())
            for code in CODES[:-1]
        ]
        airports.publish(*messages)

        assert outcomes(airports) == [*["fetched"] * (len(CODES) - 1), "hit"]
        assert (airports.log.count("changelog.not_used"), CONVERTER in airports.log) == (1, True)


def test_flattened_events_restore_no_row(
    postgres_server: PostgresServer, kafka: KafkaBroker
) -> None:
    """Rewritten deletions and placeholders of flattened events are queried, not served."""
    with following_new_tables(
        postgres_server, kafka.address, 1, cache=UNPROVED, format="upsert_json"
    ) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2, 3)
        table = followed.table
        table.commit(f"DELETE FROM {table.name} WHERE id = 1")
        table.commit(f"UPDATE {table.name} SET name = 'tres' WHERE id = 3")
        followed.publish(
            flattened(1, "one", __deleted="true"),
            flattened(2, "__debezium_unavailable_value"),
            flattened(3, "tres"),
        )

        answers = followed.look_up(1, 2, 3)

    assert answers == [("missing", None), ("fetched", "two"), ("hit", "tres")]


def test_events_of_a_registry_drop_one_row(
    postgres_server: PostgresServer, kafka: KafkaBroker
) -> None:
    """Events behind the number of a JSON schema in a registry drop their rows only."""
    with following_new_tables(postgres_server, kafka.address, 1) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2)
        event = followed.table.rename(1, "uno")
        number = b"\0\0\0\1\7"
        followed.publish(Message(number + (event.key or b""), number + (event.value or b"")))

        assert followed.look_up(1, 2) == [("fetched", "uno"), ("hit", "two")]


def test_deletion_by_another_key_is_seen(
    postgres_server: PostgresServer, kafka: KafkaBroker
) -> None:
    """A deletion whose message has the key of a partition, as by a transform, drops its row."""
    with following_new_tables(postgres_server, kafka.address, 1) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2, 3)
        transaction_id = followed.table.commit(f"DELETE FROM {followed.name} WHERE id = 2")
        event = followed.table.messages.deletion(2, transaction_id=transaction_id)
        change = json.loads(event.value or b"") | {"before": {"id": 2, "name": None, "note": None}}
        followed.publish(Message(b"1", json.dumps(change).encode()))

        assert [outcome for outcome, _ in followed.look_up(1, 2, 3)] == [
            "fetched",
            "missing",
            "hit",
        ]
        assert "the key of a message is not the key of its row" in followed.log


def flattened(key: int, name: str, **marks: object) -> Message:
    """A message of ExtractNewRecordState."""
    row: dict[str, Any] = {"id": key, "name": name, "note": None, **marks}
    return Message(json.dumps({"id": key}).encode(), json.dumps(row).encode())


def outcomes(airports: FollowedTable) -> list[str]:
    """The outcome of each code."""
    body = {"keys": CODES}
    answer = airports.sidecar.post(f"/v1/dimensions/{airports.name}/lookup", body).json()
    found: list[str] = answer["outcomes"]
    return found
