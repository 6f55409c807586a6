"""The doctor's findings on changelog topics of a real Kafka."""

import asyncio
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic, operating
from service.config.refresh import Changelog
from service.doctor.backends.kafka_check import check_kafka
from service.doctor.finding import Finding, Severity
from tests.integration.conftest import GUEST_PASSWORD
from tests.integration.feeds.kafka_reading import PATIENCE_S, POLL_INTERVAL_S
from tests.integration.feeds.kafka_rights import allow_reading
from tests.service.doctor.findings import SUBJECT


async def findings(brokers: str, topic: str, **more: object) -> list[Finding]:
    """The findings on one changelog."""
    values = {"brokers": [brokers], "topic": topic, "format": "upsert_json", **more}
    changelog = Changelog.model_validate(values)
    async with asyncio.timeout(PATIENCE_S):
        return [each async for each in check_kafka(SUBJECT, changelog)]


async def faults(brokers: str, topic: str, **more: object) -> list[Finding]:
    """The findings that are not OK."""
    found = await findings(brokers, topic, **more)
    return [finding for finding in found if finding.severity is not Severity.OK]


async def set_retention(brokers: str, topic: str, retention_ms: int) -> None:
    """Change the retention of a topic."""
    async with operating(brokers) as operator:
        settings = {"retention.ms": str(retention_ms)}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)
        await operator.alter_configs([resource])
        # The controller confirms the change before the broker knows it.
        while await _retention_ms(operator, topic) != retention_ms:  # noqa: ASYNC110
            await asyncio.sleep(POLL_INTERVAL_S)


async def _retention_ms(operator: AIOKafkaAdminClient, topic: str) -> int:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
    (reply,) = await operator.describe_configs([resource])
    (described,) = reply.resources
    ((_, value, *_),) = described[-1]
    return int(value)


async def test_missing_topic_is_an_error(kafka: KafkaBroker, topic: str) -> None:
    """A missing topic is an error; the check does not create it."""
    first, second = await faults(kafka.address, topic), await faults(kafka.address, topic)

    (finding,) = first
    assert (finding.severity, topic in finding.message) == (Severity.ERROR, True)
    assert finding.remedy.startswith(f"create topic {topic}")
    assert second == first


async def test_short_retention_is_an_error(kafka: KafkaBroker, topic: str) -> None:
    """Retention shorter than the lookback is an error; with the remedy, the topic is OK."""
    await create_topic(kafka.address, topic, partitions=3)
    before = await findings(kafka.address, topic)
    await set_retention(kafka.address, topic, 30_000)

    (finding,) = await faults(kafka.address, topic)
    await set_retention(kafka.address, topic, 600_000)

    assert [each.severity for each in before] == [Severity.OK, Severity.OK]
    assert (finding.severity, "600000" in finding.remedy) == (Severity.ERROR, True)
    assert await faults(kafka.address, topic) == []


async def test_missing_heartbeats_are_an_error(kafka: KafkaBroker, topic: str) -> None:
    """A heartbeat topic that does not exist is an error."""
    await create_topic(kafka.address, topic)

    (finding,) = await faults(kafka.address, topic, heartbeat_topic="no-heartbeats")

    assert (finding.severity, "no-heartbeats" in finding.message) == (Severity.ERROR, True)


async def test_forbidden_topic_is_an_error(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """A topic that the user may not read is an error with the command that grants it."""
    await create_topic(kafka.address, topic)
    password = tmp_path / "password"
    password.write_text(GUEST_PASSWORD)
    password.chmod(0o400)
    login = {"mechanism": "PLAIN", "username": "guest", "password_file": str(password)}

    (refused,) = await faults(kafka.sasl_address, topic, security=login)
    await allow_reading(kafka.address, "guest", topic)
    allowed = await faults(kafka.sasl_address, topic, security=login)

    assert refused.severity is Severity.ERROR
    assert "--allow-principal User:guest" in refused.remedy
    assert [each.severity for each in allowed] == [Severity.SKIPPED]  # settings may not be read
    assert GUEST_PASSWORD not in str([refused, allowed])
