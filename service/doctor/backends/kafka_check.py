"""Kafka check: the topic is readable, and its retention covers an outage."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from lookup_core.errors import BackendError, ErrorCode
from service.config.quantity import duration_text
from service.config.refresh import Changelog
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.settings import KafkaSettings
from service.doctor.finding import Finding, Subject, error_finding
from service.wiring.connector_settings import kafka_settings

_BROKER_OUTAGE_S = 600.0  # a feed survives it without a reload
_TOPIC_RESOURCE_TYPE = 2
_SETTINGS = ("retention.ms", "cleanup.policy", "delete.retention.ms")
_READ_MS = 300
_REQUEST_TIMEOUT_S = 4.0  # less than the timeout of a check
_REMEDIES = {
    ErrorCode.TABLE_UNAVAILABLE: "create topic {topic}, start its connector, or correct the name",
    ErrorCode.FORBIDDEN: "kafka-acls.sh --add --allow-principal User:{user} --operation Read "
    "--operation Describe --topic {topic}",
    ErrorCode.BACKEND_UNAVAILABLE: "check that the brokers run, and that their advertised "
    "addresses (advertised.listeners) are reachable from here",
}


@dataclass(frozen=True, slots=True)
class KafkaTopicFacts:
    """A readable topic; its settings are None without the right to describe them."""

    partitions: int
    settings: Mapping[str, str] | None = None
    has_heartbeat_topic: bool = True  # also if none is configured


async def check_kafka(subject: Subject, changelog: Changelog) -> AsyncGenerator[Finding, None]:
    """Yield whether the topic of a changelog is readable, and retained long enough."""
    settings = kafka_settings(changelog)
    try:
        facts = await _read_topic(settings)
    except BackendError as error:
        remedy = _REMEDIES.get(error.code, "")
        remedy = remedy.format(topic=settings.topic, user=settings.sasl_user or "…")
        yield error_finding(subject, error, remedy=remedy)
    else:
        for finding in topic_findings(subject, facts, settings):
            yield finding


async def _read_topic(settings: KafkaSettings) -> KafkaTopicFacts:
    """Read from the end of the topic; raises BackendError if that fails."""
    quick = replace(settings, request_timeout_s=_REQUEST_TIMEOUT_S)
    async with AsyncExitStack() as stack:
        consumer = await KafkaConsumer.opened(quick, stack)
        with mapped_errors(quick):
            partitions = consumer.changelog_partitions()
            consumer.assign(partitions)
            # The right to describe a topic does not include the right to read it.
            ends = await consumer.end_offsets(partitions)
            for partition, offset in ends.items():
                consumer.seek(partition, offset)
            await consumer.getmany(timeout_ms=_READ_MS)
            heartbeat = settings.heartbeat_topic
            return KafkaTopicFacts(
                len(partitions),
                await _topic_settings(consumer, settings.topic),
                has_heartbeat_topic=heartbeat is None or heartbeat in consumer.client.topic_ids,
            )


async def _topic_settings(consumer: KafkaConsumer, topic: str) -> Mapping[str, str] | None:
    request = DescribeConfigsRequest([(_TOPIC_RESOURCE_TYPE, topic, list(_SETTINGS))])
    node = next(iter(consumer.client.cluster.brokers())).nodeId
    try:
        reply = await consumer.client.send(node, request)
    except (TimeoutError, KafkaError):
        return None  # a sidecar does not need this right
    ((error_code, _, _, _, entries),) = reply.resources
    return None if error_code else {name: value for name, value, *_ in entries}


def topic_findings(
    subject: Subject, facts: KafkaTopicFacts, settings: KafkaSettings
) -> Iterator[Finding]:
    """Yield the findings for these properties."""
    yield subject.ok(f"can be read; partitions: {facts.partitions}")
    if not facts.has_heartbeat_topic:
        yield subject.error(
            f"there is no heartbeat topic {settings.heartbeat_topic}: the feed is never live",
            "set heartbeat.interval.ms in the connector, or leave heartbeat_topic out",
        )
    if facts.settings is None:
        yield subject.skipped(
            "the sidecar's user has no right to read the topic's retention",
            f"kafka-configs.sh --describe --topic {settings.topic}: retention.ms of at least "
            f"{_BROKER_OUTAGE_S * 1000:.0f}; or allow DESCRIBE_CONFIGS on it",
        )
    else:
        yield retention_finding(subject, facts.settings, lookback_s=settings.lookback_s)


def retention_finding(
    subject: Subject, settings: Mapping[str, str], *, lookback_s: float
) -> Finding:
    """Return whether retention covers the lookback of a start, and an outage of the brokers."""
    policy = settings.get("cleanup.policy", "delete")
    # Compaction keeps the last change of each key, but deletes tombstones after their own time.
    name = "retention.ms" if "delete" in policy else "delete.retention.ms"
    kept_s = int(settings.get(name) or -1) / 1000
    kept = f"keeps changes for {duration_text(kept_s)} ({name})"
    remedy = f"set {name} of the topic to {_BROKER_OUTAGE_S * 1000:.0f} or more, or to -1"
    if 0 <= kept_s < lookback_s:
        return subject.error(
            f"{kept}, and a start reads back {duration_text(lookback_s)}: each gap empties the "
            "cache",
            remedy,
        )
    if 0 <= kept_s < _BROKER_OUTAGE_S:
        return subject.warning(f"{kept}: a longer outage of the brokers empties the cache", remedy)
    return subject.ok(f"cleanup.policy {policy} keeps changes for long enough")
