"""The cases of the alerts, as promtool reads them, and one run of a file of them.

What the cases say stands in `rules/`; that there are enough of them is a test's business.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.manifests import parse_yaml
from tests.monitoring.prometheus_programs import promtool
from tests.monitoring.rule_file import PLAIN_NAME

FOLDER = Path(__file__).parent / "rules"


@dataclass(frozen=True, slots=True)
class AlertCase:
    """One story and what an alert does in it."""

    alert: str
    name: str
    severities: frozenset[str]  # told in it at any of its moments; none: it is silent


def case_files() -> list[Path]:
    """One for each alert, named so."""
    return sorted(FOLDER.glob("*.yaml"))


def alert_cases(file: Path) -> list[AlertCase]:
    """All cases of a file."""
    return [
        AlertCase(told["alertname"], story["name"], _severities(told["exp_alerts"]))
        for story in parse_yaml(file.read_text())["tests"]
        for told in story.get("alert_rule_test", [])
    ]


def run_cases(cases: str, rules: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Let promtool play the cases against the rules."""
    (folder / PLAIN_NAME).write_text(rules)
    file = folder / "cases.yaml"
    file.write_text(cases)
    return promtool("test", "rules", file)


def _severities(expected: list[dict[str, dict[str, str]]]) -> frozenset[str]:
    return frozenset(alert["exp_labels"]["severity"] for alert in expected)
