"""A changelog in a real Kafka does what every source does."""

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from service.connectors.kafka.settings import KafkaSettings
from tests.integration.kafka_reading import changelog, send_keys
from tests.service.connectors.kafka.keys_decoder import SCHEMA
from tests.service.connectors.source_contract import RepeatableSourceContract, SourceCase


class TestKafkaChangelog(RepeatableSourceContract):
    """Two partitions, of some messages each."""

    @pytest.fixture
    async def case(self, kafka: KafkaBroker, topic: str) -> SourceCase:
        """A topic that nobody writes to any more."""
        await create_topic(kafka.address, topic, partitions=2)
        for partition, first in ((0, 0), (1, 100)):
            for start in (first, first + 3):  # batches, so that there are several pieces
                keys = range(start, start + 3)
                await send_keys(kafka.address, topic, keys, partition=partition)
        return SourceCase(changelog(KafkaSettings((kafka.address,), topic)), SCHEMA)
