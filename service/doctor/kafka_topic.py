"""What the brokers say of a changelog topic to the user that the sidecar logs in as.

Asked by the sidecar's own consumer, without a group; nothing is committed and no topic is made.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from service.sources.kafka_consumer import KafkaConsumer
from service.sources.kafka_errors import mapped_errors
from service.sources.kafka_settings import KafkaSettings

_TOPIC = 2  # kind of resource, of the protocol
_NAMES = ("retention.ms", "cleanup.policy", "delete.retention.ms")
_READING_MS = 300
_REQUEST_TIMEOUT_S = 4.0  # within that of a check


@dataclass(frozen=True, slots=True)
class KafkaTopicFacts:
    """A topic that can be read; its settings are None where they may not be asked for."""

    partitions: int
    settings: Mapping[str, str] | None = None
    has_heartbeat_topic: bool = True  # or none is configured


async def read_kafka_topic(settings: KafkaSettings) -> KafkaTopicFacts:
    """The facts; raises BackendError that says why the topic cannot be read."""
    quick = replace(settings, request_timeout_s=_REQUEST_TIMEOUT_S)
    async with _consumer(quick) as consumer:
        with mapped_errors(quick):
            addresses = consumer.changelog_partitions()
            consumer.assign(addresses)
            # That it may be described says nothing of whether it may be read.
            ends = await consumer.end_offsets(addresses)
            for address, offset in ends.items():
                consumer.seek(address, offset)
            await consumer.getmany(timeout_ms=_READING_MS)
            heartbeat = settings.heartbeat_topic
            return KafkaTopicFacts(
                len(addresses),
                await _settings(consumer, settings.topic),
                has_heartbeat_topic=heartbeat is None or heartbeat in consumer.client.topic_ids,
            )


@asynccontextmanager
async def _consumer(settings: KafkaSettings) -> AsyncIterator[KafkaConsumer]:
    consumer = await KafkaConsumer.opened(settings)
    try:
        yield consumer
    finally:
        await consumer.close()


async def _settings(consumer: KafkaConsumer, topic: str) -> Mapping[str, str] | None:
    request = DescribeConfigsRequest([(_TOPIC, topic, list(_NAMES))])
    node = next(iter(consumer.client.cluster.brokers())).nodeId
    try:
        reply = await consumer.client.send(node, request)
    except (TimeoutError, KafkaError):
        return None  # a sidecar needs no right to it
    ((error_code, _, _, _, entries),) = reply.resources
    return None if error_code else {name: value for name, value, *_ in entries}
