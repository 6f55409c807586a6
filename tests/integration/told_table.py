"""A table of PostgreSQL, the topic that tells its changes, and a sidecar's dimension of both.

All three have one name. The test itself is the connector: it says what is told, and when.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.changelog_sidecar import LONG, PATIENCE_S, Answer, ChangelogSidecar
from tests.integration.debezium_messages import Message, TableMessages
from tests.integration.kafka_reading import producing
from tools.processes.postgres_server import Database
from tools.processes.until import until

NAMES = {1: "one", 2: "two", 3: "three"}
PARTITIONS = 2
TIMEOUT_S = 8.0  # of a lookup: a machine that stands still for a moment costs no answer
_TRANSACTION = "SELECT pg_current_xact_id()::text::int8"


@dataclass(frozen=True, slots=True)
class ToldTable:
    """Rows of planes by number, each with a name and a note."""

    name: str
    database: Database
    brokers: str

    @property
    def messages(self) -> TableMessages:
        """What a connector would write."""
        return TableMessages(self.name)

    def create(self, names: Mapping[int, str] = NAMES) -> None:
        """Make the table, and its topic."""
        self.database.execute(
            f"CREATE TABLE {self.name} (id int PRIMARY KEY, name text, note text)"
        )
        self.database.insert(self.name, [(key, name, None) for key, name in names.items()])
        asyncio.run(create_topic(self.brokers, self.name, partitions=PARTITIONS))

    def dimension(self, *, cache: Mapping[str, Any] = LONG, **changelog: object) -> dict[str, Any]:
        """The configuration of a dimension that follows it."""
        refresh = {"brokers": [self.brokers], "topic": self.name, "format": "debezium_json"}
        return {
            "source": {
                "kind": "postgres",
                "dsn": self.database.dsn(),
                "table": f"public.{self.name}",
            },
            "key": ["id"],
            "timeout": f"{TIMEOUT_S:g}s",
            "cache": dict(cache),
            "refresh": {"changelog": {**refresh, **changelog}},
        }

    def commit(self, statement: str) -> int:
        """Change something; the id of the transaction."""
        with self.changing(statement) as transaction_id:
            return transaction_id

    @contextmanager
    def changing(self, statement: str) -> Iterator[int]:
        """A transaction that has changed something, and is committed at the end; its id."""
        with psycopg.connect(self.database.dsn()) as connection:
            connection.execute(statement.encode())
            row = connection.execute(_TRANSACTION.encode()).fetchone()
            assert row is not None
            yield row[0]

    def rename(self, key: int, name: str) -> Message:
        """Give a plane another name; what a connector says of it."""
        transaction_id = self.commit(f"UPDATE {self.name} SET name = '{name}' WHERE id = {key}")
        row = {"id": key, "name": name, "note": None}
        return self.messages.upsert(row, transaction_id=transaction_id)

    def send(self, *messages: Message, partition: int = 0, **options: object) -> dict[str, int]:
        """Write messages; how far a reader of them must be in each partition that has some."""
        return asyncio.run(_send(self, messages, partition, options))


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """Such a table, and the sidecar that follows it."""

    table: ToldTable
    sidecar: ChangelogSidecar

    @property
    def name(self) -> str:
        """Of the table, the topic and the dimension."""
        return self.table.name

    def tell(self, *messages: Message, partition: int = 0, **options: object) -> None:
        """Write messages, and wait until the sidecar has taken all of them in."""
        self.wait_until_read(self.table.send(*messages, partition=partition, **options))

    def wait_until_read(self, ends: Mapping[str, int]) -> None:
        """Wait until the sidecar is so far."""

        def is_read() -> bool:
            read = self.sidecar.positions(self.name)
            return all((read.get(split) or 0) >= end for split, end in ends.items())

        until(is_read, within_s=PATIENCE_S)

    def look_up(self, *keys: int, **request: object) -> list[Answer]:
        """How the keys are answered."""
        return self.sidecar.look_up(self.name, keys, **request)

    def keep(self, *keys: int) -> None:
        """Wait until the keys are answered from the cache."""
        until(lambda: self.outcomes(*keys) == {"hit"}, within_s=PATIENCE_S)

    def outcomes(self, *keys: int) -> set[str]:
        """How the keys end."""
        return {outcome for outcome, _ in self.look_up(*keys)}


async def _send(
    table: ToldTable, messages: tuple[Message, ...], partition: int, options: Mapping[str, Any]
) -> dict[str, int]:
    async with producing(table.brokers, **options) as producer:
        sent = [
            await producer.send(table.name, each.value, key=each.key, partition=partition)
            for each in messages
        ]
        written = await asyncio.gather(*sent)
    return {f"{table.name}-{each.partition}": each.offset + 1 for each in written}
