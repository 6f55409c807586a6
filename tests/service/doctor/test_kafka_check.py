"""What a topic's facts mean."""

import pytest

from service.config.refresh import Changelog
from service.connectors.kafka.settings import KafkaSettings
from service.doctor.backends.kafka_check import (
    KafkaCheck,
    KafkaTopicFacts,
    retention_finding,
    topic_findings,
)
from tests.service.doctor.findings import MATTER, gathered, severities

SETTINGS = KafkaSettings(("h:1",), "t", heartbeat_topic="beats")


@pytest.mark.parametrize(
    ("settings", "severity"),
    [
        ({"retention.ms": "600000"}, "ok"),
        ({"retention.ms": "599999"}, "warning"),
        ({"retention.ms": "60000"}, "warning"),
        ({"retention.ms": "59999"}, "error"),
        ({"retention.ms": "0"}, "error"),
        ({"retention.ms": "-1"}, "ok"),
        ({"cleanup.policy": "compact", "retention.ms": "1"}, "ok"),
        ({"cleanup.policy": "compact", "delete.retention.ms": "59999"}, "error"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "59999"}, "error"),
        ({}, "ok"),
    ],
)
def test_topic_must_keep_what_a_start_needs(settings: dict[str, str], severity: str) -> None:
    """A minute is looked back; ten are kept for comfort; compaction keeps the last change."""
    assert retention_finding(MATTER, settings, lookback_s=60.0).severity == severity


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (KafkaTopicFacts(3, {}), ["ok", "ok"]),
        (KafkaTopicFacts(3, None), ["ok", "skipped"]),
        (KafkaTopicFacts(3, {}, has_heartbeat_topic=False), ["ok", "error", "ok"]),
    ],
)
def test_topic_is_judged(facts: KafkaTopicFacts, expected: list[str]) -> None:
    """Settings that may not be asked for stay open; heartbeats that are missing are an error."""
    assert severities(topic_findings(MATTER, facts, SETTINGS)) == expected


async def test_brokers_that_are_away_are_one_error() -> None:
    """The remedy names what most often is wrong: the addresses that brokers advertise."""
    values = {"brokers": ["127.0.0.1:1"], "topic": "t", "format": "upsert_json"}

    (finding,) = await gathered(KafkaCheck("a", Changelog.model_validate(values)).findings())

    assert (finding.severity, "advertised.listeners" in finding.remedy) == ("error", True)
