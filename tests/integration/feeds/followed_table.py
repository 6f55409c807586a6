"""A PostgreSQL table, the topic of its changes, and the sidecar dimension that follows it.

All three have the same name. The test acts as the connector.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.feeds.debezium_messages import Message, TableMessages, heartbeat
from tests.integration.feeds.kafka_reading import PATIENCE_S, producing
from tests.integration.lookups.tables import changing
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.sidecar_process import SERVE, SidecarProcess
from tools.processes.until import until

NAMES = {1: "one", 2: "two", 3: "three"}
PARTITIONS = 2
UNPROVED = {"mode": "full"}  # without audit
LONG = {"ttl": "1h", "negative_ttl": "1h"}  # rows stay until the feed invalidates them
BEAT_INTERVAL_S = 0.2

Answer = tuple[str, str | None]  # outcome, and name in the row


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of numbered rows with a name and a note, and the topic of its changes."""

    name: str
    database: Database
    brokers: str

    @property
    def messages(self) -> TableMessages:
        """Messages of a connector of this table."""
        return TableMessages(self.name)

    def create(self, names: Mapping[int, str] = NAMES) -> None:
        """Create table and topic."""
        self.database.execute(
            f"CREATE TABLE {self.name} (id int PRIMARY KEY, name text, note text)"
        )
        self.database.insert(self.name, [(key, name, None) for key, name in names.items()])
        asyncio.run(create_topic(self.brokers, self.name, partitions=PARTITIONS))

    def dimension(self, *, cache: Mapping[str, Any] = LONG, **changelog: object) -> dict[str, Any]:
        """The configuration of a dimension that follows the table.

        In `UNPROVED` mode, rows of events are used from the first one on.
        """
        table = f"public.{self.name}"
        refresh = {"brokers": [self.brokers], "topic": self.name, "format": "debezium_json"}
        return {
            "source": {"kind": "postgres", "dsn": self.database.dsn(), "table": table},
            "key": ["id"],
            "timeout": "8s",
            "cache": dict(cache),
            "refresh": {
                "changelog": {**refresh, **changelog},
                **({"audit": None} if cache is UNPROVED else {}),
            },
        }

    def commit(self, statement: str) -> int:
        """Execute a statement; return the id of its transaction."""
        with changing(self.database, statement) as transaction_id:
            return transaction_id

    def rename(self, key: int, name: str) -> Message:
        """Change the name of a row; return its message."""
        transaction_id = self.commit(f"UPDATE {self.name} SET name = '{name}' WHERE id = {key}")
        row = {"id": key, "name": name, "note": None}
        return self.messages.upsert(row, transaction_id=transaction_id)

    def send(self, *messages: Message, partition: int = 0, **options: object) -> dict[str, int]:
        """Write messages; return the end of each partition written to."""
        return asyncio.run(_send(self, messages, partition, options))


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table and the sidecar that follows it."""

    table: SourceTable
    sidecar: SidecarProcess

    @property
    def name(self) -> str:
        """The name of table, topic and dimension."""
        return self.table.name

    @property
    def log(self) -> str:
        """The log of the sidecar."""
        return (self.sidecar.folder / "log").read_text()

    def look_up(self, *keys: int, **request: object) -> list[Answer]:
        """The answers to the keys."""
        path = f"/v1/dimensions/{self.name}/lookup"
        reply = self.sidecar.post(path, {"keys": keys, **request})
        assert reply.status == 200, reply.text
        answer = reply.json()
        names = [None if row is None else row["name"] for row in answer["rows"]]
        return list(zip(answer["outcomes"], names, strict=True))

    def outcomes(self, *keys: int) -> set[str]:
        """The outcomes of the keys."""
        return {outcome for outcome, _ in self.look_up(*keys)}

    def keep(self, *keys: int) -> None:
        """Wait until the keys are answered from the cache."""
        until(lambda: self.outcomes(*keys) == {"hit"})

    def feed(self) -> Any:  # noqa: ANN401  # any JSON
        """The state of the feed, as the catalogue reports it."""
        return self.sidecar.get(f"/v1/dimensions/{self.name}").json()["freshness"]["feed"]

    def health(self) -> Any:  # noqa: ANN401  # any JSON
        """The reasons of the dimension's health."""
        return self.sidecar.get(f"/v1/dimensions/{self.name}").json()["health"]

    def wait_until_live(self) -> None:
        """Wait until the cache is used."""
        until(lambda: self.feed()["state"] == "live")

    def wait_until_bypassed(self) -> None:
        """Wait until the cache is bypassed."""
        until(lambda: self.feed()["state"] != "live")

    def publish(self, *messages: Message, partition: int = 0, **options: object) -> None:
        """Write messages, and wait until the sidecar has processed them."""
        self.wait_until_read(self.table.send(*messages, partition=partition, **options))

    def wait_until_read(self, ends: Mapping[str, int]) -> None:
        """Wait until the sidecar has read the partitions to these ends."""

        def is_read() -> bool:
            read = {split["id"]: split["position"] for split in self.feed()["splits"]}
            return all((read.get(split) or 0) >= end for split, end in ends.items())

        until(is_read)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the dimension's samples with these labels."""
        wanted = {"dimension": self.name, **labels}
        families = text_string_to_metric_families(self.sidecar.health("/metrics").text)
        samples = [sample for family in families for sample in family.samples]
        return sum(
            sample.value
            for sample in samples
            if sample.name == name and wanted.items() <= sample.labels.items()
        )


@contextmanager
def following(
    tables: Sequence[SourceTable],
    dimensions: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    ready: str = "/readyz",
) -> Iterator[list[FollowedTable]]:
    """A sidecar with a dimension of each table; configured as `dimensions`, if given."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: socket paths are limited
    config = folder / "config.json"
    chosen = dimensions or {table.name: table.dimension() for table in tables}
    config.write_text(json.dumps({"dimensions": chosen}))
    sidecar = SidecarProcess(folder, (*SERVE, "--config", str(config)))
    with sidecar.running(until=ready):
        yield [FollowedTable(table, sidecar) for table in tables]
    shutil.rmtree(folder)


@contextmanager
def following_new_tables(
    server: PostgresServer,
    brokers: str,
    count: int,
    *,
    cache: Mapping[str, Any] = LONG,
    **changelog: object,
) -> Iterator[list[FollowedTable]]:
    """A sidecar that follows this many new tables of one database."""
    database = server.new_database()
    names = [f"{database.name}_{number}" for number in range(count)]  # topics of this run only
    tables = [SourceTable(name, database, brokers) for name in names]
    for table in tables:
        table.create()
    dimensions = {table.name: table.dimension(cache=cache, **changelog) for table in tables}
    with following(tables, dimensions) as planes:
        yield planes


class BeatingConnector:
    """A connector in a thread that writes messages in order, and heartbeats between them."""

    def __init__(self, table: SourceTable, heartbeat_topic: str) -> None:
        self._table = table
        self._heartbeat_topic = heartbeat_topic
        self._unsent: deque[Message] = deque()
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        """Start; returns after the first heartbeat."""
        self._thread.start()
        assert self._has_begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *error: object) -> None:
        """End after the current message."""
        self._is_over.set()
        self._thread.join()

    def publish(self, message: Message) -> None:
        """Write the message before the next heartbeat."""
        self._unsent.append(message)

    async def _run(self) -> None:
        async with producing(self._table.brokers) as producer:
            while not self._is_over.is_set():
                await self._beat(producer)
                await asyncio.sleep(BEAT_INTERVAL_S)

    async def _beat(self, producer: AIOKafkaProducer) -> None:
        while self._unsent:
            await self._write(producer, self._table.name, self._unsent.popleft())
        await self._write(producer, self._heartbeat_topic, heartbeat())
        self._has_begun.set()

    async def _write(self, producer: AIOKafkaProducer, topic: str, message: Message) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaError):  # the broker may be down
                await producer.send_and_wait(topic, message.value, key=message.key)
                return
            await asyncio.sleep(BEAT_INTERVAL_S)


async def _send(
    table: SourceTable, messages: tuple[Message, ...], partition: int, options: Mapping[str, Any]
) -> dict[str, int]:
    async with producing(table.brokers, **options) as producer:
        sent = [
            await producer.send(table.name, each.value, key=each.key, partition=partition)
            for each in messages
        ]
        written = await asyncio.gather(*sent)
    return {f"{table.name}-{each.partition}": each.offset + 1 for each in written}
