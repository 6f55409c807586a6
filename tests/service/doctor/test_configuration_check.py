"""Oddities of a configuration."""

from typing import Any

import pytest

from service.config.settings import Settings
from service.doctor.sidecar.configuration_check import ConfigurationCheck, configuration_findings
from tests.service.doctor.findings import gathered, severities

POSTGRES = {"kind": "postgres", "dsn": "postgresql://me@h/d", "table": "t"}


def settings(*, limits: dict[str, Any] | None = None, listen: Any = None, **more: Any) -> Settings:  # noqa: ANN401
    """One dimension of PostgreSQL."""
    dimension = {"source": POSTGRES, "key": ["id"], **more}
    return Settings(
        {"dimensions": {"a": dimension}, "limits": limits or {}, "listen": listen or {}}
    )


def subjects(settings: Settings) -> list[str]:
    """What is odd."""
    return [finding.subject for finding in configuration_findings(settings)]


async def test_plain_configuration_is_well() -> None:
    """One finding says that nothing is odd."""
    found = await gathered(ConfigurationCheck("f", settings()).findings())

    assert severities(found) == ["ok"]


async def test_faults_are_errors() -> None:
    """Each fault of one that cannot be loaded is an error of its own."""
    found = await gathered(ConfigurationCheck("f", None, ["a: x", "b: y"]).findings())

    assert [(finding.severity, finding.message) for finding in found] == [
        ("error", "a: x"),
        ("error", "b: y"),
    ]


@pytest.mark.parametrize(("max_bytes", "expected"), [("256MiB", []), ("257MiB", ["limits.memory"])])
def test_caches_get_half_of_the_memory(max_bytes: str, expected: list[str]) -> None:
    """Written bounds of more than half of limits.memory are told, with what would suffice."""
    assert subjects(settings(cache={"max_bytes": max_bytes})) == expected


def test_bounds_that_nobody_wrote_are_no_news() -> None:
    """A default that is scaled down is as it is meant."""
    assert subjects(settings(limits={"memory": "64MiB", "request_bytes": "1MiB"})) == []


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({"cache": {"ttl": "2s", "negative_ttl": "0s"}}, 0),
        ({"cache": {"ttl": "1900ms", "negative_ttl": "0s"}}, 1),
        ({"cache": {"ttl": "5s", "negative_ttl": "5s"}}, 0),
        ({"cache": {"ttl": "5s", "negative_ttl": "6s"}}, 1),
        ({"cache": {"mode": "full"}}, 1),
        ({"cache": {"mode": "full"}, "refresh": {"reload": {"every": "1h"}}}, 0),
        ({"cache": {"mode": "full"}, "refresh": {"listen": {}}}, 0),
        ({"source": POSTGRES | {"dsn": "postgresql://me:secret@h/d"}}, 1),
    ],
)
def test_odd_dimensions_are_told(more: dict[str, Any], count: int) -> None:
    """Times that contradict each other, a table loaded once, a password in the file."""
    found = list(configuration_findings(settings(**more)))

    assert severities(found) == ["warning"] * count
    assert "secret" not in str(found)


def test_closed_health_listener_is_told() -> None:
    """Without it neither probes nor Prometheus find anything."""
    assert subjects(settings(listen={"health": None})) == ["listen.health"]
