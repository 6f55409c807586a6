"""The way of changes out of PostgreSQL: Debezium writes them into topics of Kafka.

All of it is embedded, for as long as it is needed; the sidecar only reads.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from demo.dimension import Dimension
from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.java_process import JavaProcess
from demo.embedded_kafka.kafka_broker import kafka_broker
from demo.embedded_kafka.kafka_libraries import KafkaUnavailable
from demo.embedded_kafka.kafka_topics import create_topic
from demo.embedded_kafka.unix_relay import unix_relay
from demo.postgres import DATABASE, Postgres

SCHEMA = "public"
START_TIMEOUT_S = 90.0
POLL_INTERVAL_S = 0.1
IS_FOLLOWED = "SELECT count(*) FROM pg_replication_slots WHERE active"

Settings = dict[str, dict[str, Any]]  # {dimension: what its `refresh.changelog` is}


@contextmanager
def running_changelog(
    folder: Path, postgres: Postgres, dimensions: Sequence[Dimension], *, libraries: Path
) -> Iterator[Settings]:
    """Follow the tables until the end; what is committed from the start on is told.

    Raises KafkaUnavailable where Kafka or Debezium does not start.
    """
    first, *others = (f"{SCHEMA}.{dimension.name}" for dimension in dimensions)
    with (
        kafka_broker(folder / "kafka", libraries=libraries) as broker,
        unix_relay(postgres.socket) as port,
    ):
        captured = CapturedTable(port, DATABASE, first, others=tuple(others))
        for table in (first, *others):
            asyncio.run(create_topic(broker.address, captured.topic_of(table)))
        with debezium_connector(
            folder / "debezium", captured, brokers=broker.address, libraries=libraries
        ) as debezium:
            _wait_until_followed(postgres.admin_dsn, debezium)
            yield {each.name: _settings(each, captured, broker.address) for each in dimensions}


def _settings(dimension: Dimension, captured: CapturedTable, brokers: str) -> dict[str, Any]:
    return {
        "brokers": [brokers],
        "topic": captured.topic_of(f"{SCHEMA}.{dimension.name}"),
        "format": "debezium_json",
        "heartbeat_topic": captured.heartbeat_topic,
    }


def _wait_until_followed(dsn: str, debezium: JavaProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(IS_FOLLOWED).fetchone() == (0,):
            if not debezium.is_running or time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Debezium did not start: {debezium.log.read_text()[-2000:]}"
                )
            time.sleep(POLL_INTERVAL_S)
