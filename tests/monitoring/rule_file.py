"""Prometheus rules and alert cases as values, and Prometheus' own programs to check them."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.debian import ToolUnavailable, debian_tool
from tools.k8s.manifests import parse_yaml
from tools.reference.pages import plain_rules

CASE_FILES = sorted((Path(__file__).parent / "rules").glob("*.yaml"))  # one for each alert
PLAIN_NAME = "sidelook.rules.yml"  # of the rules, in the cases
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule, or an alert if it has a severity."""

    group: str
    name: str
    expression: str
    severity: str | None = None
    lasting: str | None = None  # the `for` of an alert: `5m`
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def value(self) -> str:
        """An alert's expression without its threshold."""
        return re.sub(r"\s*>\s*[\d.]+\s*$", "", self.expression)


@dataclass(frozen=True, slots=True)
class AlertCase:
    """One case of promtool: what an alert does in a scenario."""

    alert: str
    name: str
    severities: frozenset[str]  # that fire at any moment of it; empty: none


def rules() -> list[Rule]:
    """All rules, in their order."""
    return list(_rules(parse_yaml(plain_rules())))


def records() -> list[Rule]:
    """The recording rules."""
    return [rule for rule in rules() if rule.severity is None]


def alerts() -> list[Rule]:
    """The alerts, each severity on its own."""
    return [rule for rule in rules() if rule.severity is not None]


def alert_names() -> list[str]:
    """The distinct names of the alerts."""
    return sorted({alert.name for alert in alerts()})


def alert_cases(file: Path) -> list[AlertCase]:
    """All cases of a file."""
    return [
        AlertCase(test["alertname"], scenario["name"], _severities(test["exp_alerts"]))
        for scenario in parse_yaml(file.read_text())["tests"]
        for test in scenario.get("alert_rule_test", [])
    ]


def prometheus_program(name: str) -> Path:
    """`prometheus` or `promtool`; skips the test if it is not available."""
    try:
        return debian_tool("prometheus", name)
    except ToolUnavailable as error:
        pytest.skip(f"{name} is not available: {error}")


def promtool(*arguments: str | Path, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run promtool with this standard input."""
    command = [str(prometheus_program("promtool")), *map(str, arguments)]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


def _rules(spec: dict[str, Any]) -> Iterator[Rule]:
    for group in spec["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                yield Rule(group["name"], rule["record"], rule["expr"])
                continue
            severity, annotations = rule["labels"]["severity"], rule["annotations"]
            yield Rule(
                group["name"],
                rule["alert"],
                rule["expr"],
                severity,
                rule["for"],
                tuple(annotations.items()),
            )


def _severities(expected: list[dict[str, dict[str, str]]]) -> frozenset[str]:
    return frozenset(alert["exp_labels"]["severity"] for alert in expected)
