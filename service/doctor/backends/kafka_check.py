"""Kafka check: the topic can be read, and retention covers a restart."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from lookup_core.errors import BackendError, ErrorCode
from service.adapter_settings import kafka_settings
from service.config.quantity import duration_text
from service.config.refresh import Changelog
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.settings import KafkaSettings
from service.doctor.finding import Finding, Subject, trouble

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


COMFORTABLE_S = 600.0  # so that a sidecar which lost its brokers for a while finds where it was


@dataclass(frozen=True, slots=True)
class KafkaCheck:
    """The topic that a dimension's changes stand in."""

    dimension: str
    changelog: Changelog

    @property
    def matter(self) -> Subject:
        """The dimension's topic."""
        return Subject("kafka", f"{self.dimension}: {self.changelog.topic}")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Whether it is reached, may be read, and keeps enough."""
        settings = kafka_settings(self.changelog)
        try:
            facts = await read_kafka_topic(settings)
        except BackendError as error:
            yield trouble(self.matter, error, remedy=_remedy(error, settings))
            return
        for finding in topic_findings(self.matter, facts, settings):
            yield finding


def topic_findings(
    matter: Subject, facts: KafkaTopicFacts, settings: KafkaSettings
) -> Iterator[Finding]:
    """What the facts mean."""
    yield matter.ok(f"can be read; partitions: {facts.partitions}")
    if not facts.has_heartbeat_topic:
        yield matter.error(
            f"there is no heartbeat topic {settings.heartbeat_topic}: the feed is never live",
            "set heartbeat.interval.ms in the connector, or leave heartbeat_topic out",
        )
    if facts.settings is None:
        yield matter.skipped(
            "how long it keeps messages may not be asked",
            f"kafka-configs.sh --describe --topic {settings.topic}: retention.ms of at least "
            f"{COMFORTABLE_S * 1000:.0f}; or allow DESCRIBE_CONFIGS on it",
        )
        return
    yield retention_finding(matter, facts.settings, lookback_s=settings.lookback_s)


def retention_finding(matter: Subject, settings: object, *, lookback_s: float) -> Finding:
    """Whether changes are kept for as long as a start looks back, and an outage may take."""
    told = settings if isinstance(settings, dict) else {}
    policy = told.get("cleanup.policy", "delete")
    # Where only compaction cleans up, a key's last change stays; that its row went, so long.
    name = "retention.ms" if "delete" in policy else "delete.retention.ms"
    kept_s = int(told.get(name) or -1) / 1000
    remedy = f"set {name} of the topic to {COMFORTABLE_S * 1000:.0f} or more, or to -1"
    if 0 <= kept_s < lookback_s:
        return matter.error(
            f"keeps changes for {duration_text(kept_s)} ({name}), and a start looks "
            f"{duration_text(lookback_s)} back: what is cut off empties the cache each time",
            remedy,
        )
    if 0 <= kept_s < COMFORTABLE_S:
        return matter.warning(
            f"keeps changes for {duration_text(kept_s)} ({name}): a longer outage of the brokers "
            "empties the cache",
            remedy,
        )
    return matter.ok(f"cleanup.policy {policy} keeps changes for long enough")


def _remedy(error: BackendError, settings: KafkaSettings) -> str:
    return _REMEDIES.get(error.code, "").format(topic=settings.topic, user=settings.sasl_user)


_REMEDIES = {
    ErrorCode.TABLE_UNAVAILABLE: "create topic {topic}, start its connector, or correct the name",
    ErrorCode.FORBIDDEN: "kafka-acls.sh --add --allow-principal User:{user} --operation Read "
    "--operation Describe --topic {topic}",
    ErrorCode.BACKEND_UNAVAILABLE: "see that the brokers run, and that the addresses which they "
    "advertise (advertised.listeners) can be reached from here",
}
