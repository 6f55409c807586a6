"""Change feeds of the freshness audit: notifications, and a changelog in Kafka by Debezium.

Each can wait until a sidecar has applied all committed changes.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.java_process import JavaProcess
from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker, kafka_libraries
from demo.embedded_kafka.kafka_topics import create_topic, delete_records
from demo.live.changelog import unix_relay
from service.connectors.kafka.assignment import partition_id
from tools.freshness.table import NAME
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.sidecar_process import SidecarProcess, clean_environ
from tools.processes.until import until

PATIENCE_S = 90.0
MAX_STALENESS_S = 12.0  # more than two heartbeats
_MAX_STALENESS = f"{MAX_STALENESS_S:g}s"
_PARTITIONS = 2
_SLOT_IS_ACTIVE = "SELECT 1 FROM pg_replication_slots WHERE active"
_MARKER = 1_000_000  # a key without lookups
_MARK = f"""INSERT INTO {NAME} VALUES ({_MARKER}, nextval('versions'), '')
    ON CONFLICT (id) DO UPDATE SET version = excluded.version"""


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """Value and key of a message that the connector has not written."""

    value: bytes
    key: bytes | None = None


class FreshnessFeed(Protocol):
    """A feed of the table's changes."""

    def refresh(self) -> Mapping[str, Any]:
        """The `refresh` section of a dimension's configuration."""

    def wait_until_applied(self, sidecar: SidecarProcess, dimension: str) -> None:
        """Wait until the dimension has applied all changes committed by now."""


def feed_of(sidecar: SidecarProcess, dimension: str) -> Any:  # noqa: ANN401  # any JSON
    """The sidecar's report on the feed."""
    return sidecar.get(f"/v1/dimensions/{dimension}").json()["freshness"]["feed"]


def is_live(sidecar: SidecarProcess, dimension: str) -> bool:
    """Whether the feed is live."""
    try:
        return bool(feed_of(sidecar, dimension)["state"] == "live")
    except OSError:  # the sidecar is stopped
        return False


@dataclass(frozen=True, slots=True)
class NotificationsFeed:
    """Triggers and a channel; heartbeats arrive in the order of the commits."""

    def refresh(self) -> Mapping[str, Any]:
        """All dimensions listen to one channel."""
        return {"listen": {"channel": NAME, "max_staleness": _MAX_STALENESS}}

    def wait_until_applied(self, sidecar: SidecarProcess, dimension: str) -> None:
        """Wait for a heartbeat that was sent after now."""
        since_ms = time.time() * 1000
        until(
            lambda: (
                is_live(sidecar, dimension)
                and (feed_of(sidecar, dimension)["watermark_ms"] or 0) > since_ms
            ),
            within_s=PATIENCE_S,
        )


@dataclass(slots=True)
class ChangelogFeed:
    """A broker, and a connector that writes the changes of the table to a topic."""

    broker: KafkaBroker
    database: Database
    captured: CapturedTable
    folder: Path
    libraries: Path
    settings: Mapping[str, Any]  # more of `refresh.changelog`
    connector: JavaProcess = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)

    def refresh(self) -> Mapping[str, Any]:
        """All dimensions follow the topic."""
        changelog = {
            "brokers": [self.broker.address],
            "topic": self.captured.topic,
            "format": "debezium_json",
            "heartbeat_topic": self.captured.heartbeat_topic,
            "database": self.database.name,  # a replica may have another name
            "max_staleness": _MAX_STALENESS,
        }
        return {"changelog": {**changelog, **self.settings}}

    def start_connector(self) -> None:
        """Start it at its last position; returns when it reads changes."""
        self.connector = self._stack.enter_context(
            debezium_connector(
                self.folder, self.captured, brokers=self.broker.address, libraries=self.libraries
            )
        )
        until(self.is_connected, within_s=PATIENCE_S)

    def restart_connector(self, *options: str) -> None:
        """Restart it at its last position with these options, as name=value, only."""
        self.stop_connector()
        self.captured = replace(self.captured, options=options)
        self.start_connector()

    def stop_connector(self) -> None:
        """Stop it."""
        self._stack.close()

    def is_connected(self) -> bool:
        """Whether a connector reads the write-ahead log."""
        return bool(self.database.query(_SLOT_IS_ACTIVE))

    def end_offsets(self) -> Mapping[str, int]:
        """The end offsets of the topic's partitions."""
        return asyncio.run(_end_offsets(self.broker.address, self.captured.topic))

    def write(self, *messages: ForeignMessage) -> None:
        """Write foreign messages to the topic."""
        asyncio.run(_write(self.broker.address, self.captured.topic, messages))

    def forget(self) -> None:
        """Delete all records of the first partition."""
        end = self.end_offsets()[f"{self.captured.topic}-0"]
        asyncio.run(delete_records(self.broker.address, self.captured.topic, before=end))

    def wait_until_applied(self, sidecar: SidecarProcess, dimension: str) -> None:
        """Wait until the topic has the whole log, and the sidecar has read the topic."""
        ((position,),) = self.database.query("SELECT pg_current_wal_lsn()")
        confirmed = f"SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn > '{position}'"

        def is_in_topic() -> bool:
            if not self.connector.is_running:  # it ends when it loses the server
                self.stop_connector()
                self.start_connector()
            self.database.execute(_MARK)  # a change, so that the connector confirms its position
            return bool(self.database.query(confirmed))

        until(is_in_topic, within_s=PATIENCE_S)
        ends = self.end_offsets()

        def is_read() -> bool:
            if not is_live(sidecar, dimension):
                return False
            splits = feed_of(sidecar, dimension)["splits"]
            return {each["id"]: each["position"] >= ends[each["id"]] for each in splits} == (
                dict.fromkeys(ends, True)
            )

        until(is_read, within_s=PATIENCE_S)


@contextmanager
def notifications_feed(database: Database, config: Path) -> Iterator[NotificationsFeed]:
    """The triggers of `gen-triggers`."""
    feed = NotificationsFeed()
    command = (sys.executable, "-m", "service", "gen-triggers", "large", "--config", str(config))
    script = subprocess.run(command, env=clean_environ(), check=True, capture_output=True)
    database.execute(script.stdout.decode())
    yield feed


@contextmanager
def changelog_feed(
    server: PostgresServer, database: Database, folder: Path, *, settings: Mapping[str, Any]
) -> Iterator[ChangelogFeed]:
    """A broker, and a connector that reads changes; `settings` are for `refresh.changelog`."""
    libraries = kafka_libraries()
    with (
        kafka_broker(folder / "kafka", libraries=libraries) as broker,
        unix_relay(server.socket_path) as port,
    ):
        captured = CapturedTable(port, database.name, f"public.{NAME}")
        connector = (captured, folder / "debezium", libraries)
        feed = ChangelogFeed(broker, database, *connector, settings)
        asyncio.run(create_topic(broker.address, captured.topic, partitions=_PARTITIONS))
        feed.start_connector()
        try:
            yield feed
        finally:
            feed.stop_connector()


async def _write(brokers: str, topic: str, messages: Sequence[ForeignMessage]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=brokers) as producer:
        for each in messages:
            await producer.send_and_wait(topic, each.value, key=each.key)


async def _end_offsets(brokers: str, topic: str) -> dict[str, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers)
    await consumer.start()
    try:
        addresses = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
        found = await consumer.end_offsets(addresses)
        return {partition_id(address): offset for address, offset in found.items()}
    finally:
        await consumer.stop()
