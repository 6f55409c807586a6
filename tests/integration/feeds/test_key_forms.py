"""A sidecar whose topic has keys as plain texts: which cached rows each message drops."""

import asyncio
import json

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.feeds.debezium_messages import Message
from tests.integration.feeds.followed_table import FollowedTable, SourceTable, following
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


def outcomes(airports: FollowedTable) -> list[str]:
    """The outcome of each code."""
    body = {"keys": CODES}
    answer = airports.sidecar.post(f"/v1/dimensions/{airports.name}/lookup", body).json()
    found: list[str] = answer["outcomes"]
    return found
