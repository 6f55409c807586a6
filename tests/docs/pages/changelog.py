"""Kafka at kafka-1:9092 and Debezium, with the connector settings that a page shows."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.kafka_broker import kafka_broker, kafka_libraries
from demo.embedded_kafka.kafka_topics import create_topic

SETTINGS = "debezium.properties"  # title of the block
_POSTGRES_PORT, _KAFKA_PORT = 5432, 9092


@contextmanager
def running_changelog(folder: Path, text: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Publish changes of the table in the settings `text`, which must exist; stops at the end.

    Raises KafkaUnavailable without the libraries, and if the broker does not start.
    """
    options = tuple(line for line in text.splitlines() if line)
    settings = dict(line.split("=", 1) for line in options)
    captured = CapturedTable(
        port=_POSTGRES_PORT,
        database="shop",
        table=settings["table.include.list"],
        prefix=settings["topic.prefix"],
        options=options,
    )
    libraries = kafka_libraries(environ=environ)
    with kafka_broker(folder / "kafka", libraries=libraries, port=_KAFKA_PORT) as broker:
        asyncio.run(create_topic(broker.address, captured.topic))
        with debezium_connector(
            folder / "debezium", captured, brokers=broker.address, libraries=libraries
        ):
            yield
