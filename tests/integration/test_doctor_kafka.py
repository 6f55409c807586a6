"""The doctor before a real Kafka: topics that are missing, forbidden, or forget too soon."""

import asyncio
import socket
import time
from functools import partial
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from service.config.refresh import Changelog
from service.doctor.backends.database_check import combined_findings
from service.doctor.backends.kafka_check import check_kafka
from service.doctor.check import Check
from service.doctor.check_runner import run_checks
from service.doctor.finding import Finding, Severity, Subject
from tests.integration.conftest import GUEST_PASSWORD
from tests.integration.kafka_reading import POLL_INTERVAL_S
from tests.integration.kafka_rights import allow_reading


async def examined(brokers: str, topic: str, **more: object) -> list[Finding]:
    """What is found of one dimension's changelog."""
    values = {"brokers": [brokers], "topic": topic, "format": "upsert_json", **more}
    changelog = Changelog.model_validate(values)
    subject = Subject("kafka", f"orders: {topic}")
    check = Check(subject, partial(check_kafka, changelog=changelog))
    return combined_findings(await run_checks([[check]]), None)


async def bad(brokers: str, topic: str, **more: object) -> list[Finding]:
    """What of it is not well."""
    found = await examined(brokers, topic, **more)
    return [finding for finding in found if finding.severity is not Severity.OK]


async def set_retention(brokers: str, topic: str, retention_ms: int) -> None:
    """Let the topic keep its messages for so long."""
    operator = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await operator.start()
    try:
        settings = {"retention.ms": str(retention_ms)}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)
        await operator.alter_configs([resource])
        # The controller has done it when it answers; the broker hears of it a moment later.
        while await _retention_ms(operator, topic) != retention_ms:  # noqa: ASYNC110
            await asyncio.sleep(POLL_INTERVAL_S)
    finally:
        await operator.close()


async def _retention_ms(operator: AIOKafkaAdminClient, topic: str) -> int:
    """For how long the topic keeps its messages, as the broker knows it."""
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
    (reply,) = await operator.describe_configs([asked])
    (resource,) = reply.resources
    ((_, value, *_),) = resource[-1]
    return int(value)


async def test_topic_that_keeps_enough_is_well(kafka: KafkaBroker, topic: str) -> None:
    """A topic with Kafka's own settings has no finding but how many partitions it has."""
    await create_topic(kafka.address, topic, partitions=3)

    found = await examined(kafka.address, topic)

    assert [(each.severity, each.message) for each in found] == [
        (Severity.OK, "can be read; partitions: 3"),
        (Severity.OK, "cleanup.policy delete keeps changes for long enough"),
    ]


async def test_missing_topic_is_an_error(kafka: KafkaBroker, topic: str) -> None:
    """A topic that is not there is not made by asking for it."""
    first, second = await bad(kafka.address, topic), await bad(kafka.address, topic)

    (finding,) = first
    assert finding.message == f"topic {topic} of {kafka.address}: the topic does not exist"
    assert finding.remedy.startswith(f"create topic {topic}")
    assert second == first


async def test_short_retention_is_mended_by_its_remedy(kafka: KafkaBroker, topic: str) -> None:
    """A topic that forgets sooner than a start looks back is an error; as told, all is well."""
    await create_topic(kafka.address, topic)
    await set_retention(kafka.address, topic, 30_000)

    (finding,) = await bad(kafka.address, topic)
    await set_retention(kafka.address, topic, 600_000)

    assert finding.severity is Severity.ERROR
    assert finding.remedy == "set retention.ms of the topic to 600000 or more, or to -1"
    assert await bad(kafka.address, topic) == []


async def test_missing_heartbeats_are_an_error(kafka: KafkaBroker, topic: str) -> None:
    """A heartbeat topic that nobody writes would never let the feed be live."""
    await create_topic(kafka.address, topic)

    (finding,) = await bad(kafka.address, topic, heartbeat_topic="no-heartbeats")

    assert (finding.severity, "no-heartbeats" in finding.message) == (Severity.ERROR, True)


async def test_forbidden_topic_is_an_error(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """A user without rights is told what gives them; settings that it may not ask stay open."""
    await create_topic(kafka.address, topic)
    password = tmp_path / "password"
    password.write_text(GUEST_PASSWORD)
    password.chmod(0o400)
    login = {"mechanism": "PLAIN", "username": "guest", "password_file": str(password)}

    (refused,) = await bad(kafka.sasl_address, topic, security=login)
    await allow_reading(kafka.address, "guest", topic)
    allowed = await bad(kafka.sasl_address, topic, security=login)

    assert (refused.severity, "--allow-principal User:guest" in refused.remedy) == ("error", True)
    assert [each.severity for each in allowed] == [Severity.SKIPPED]
    assert GUEST_PASSWORD not in str([refused, allowed])


async def test_silent_broker_is_told_in_time(topic: str) -> None:
    """Brokers that take connections and say nothing end in a finding."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        (finding,) = await bad(f"127.0.0.1:{silent.getsockname()[1]}", topic)

    assert finding.severity is Severity.ERROR
    assert time.monotonic() - began_s < 15.0
