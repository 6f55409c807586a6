"""The rules for Prometheus as values, and as the plain file that Prometheus itself reads.

Only reading: what they must say stands in the tests.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.k8s.manifests import parse_yaml

ROOT = Path(__file__).parents[2]
RULE_FILE = ROOT / "k8s" / "components" / "monitoring" / "prometheus-rule.yaml"
PLAIN_NAME = "sidelook.rules.yml"  # what the tests of the rules call it


@dataclass(frozen=True, slots=True)
class Rule:
    """A record, or an alert if it has a severity."""

    group: str
    name: str
    expression: str
    severity: str | None = None
    lasting: str | None = None  # how long it must be so: `5m`
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def value(self) -> str:
        """An alert's expression without its comparison: what it compares, alarming or not."""
        return re.sub(r"\s*>\s*[\d.]+\s*$", "", self.expression)


def plain_rules() -> str:
    """What stands below `spec:`."""
    _, _, spec = RULE_FILE.read_text().partition("\nspec:\n")
    return textwrap.dedent(spec)


def rules() -> list[Rule]:
    """All of them, in their order."""
    return list(_rules(parse_yaml(plain_rules())))


def records() -> list[Rule]:
    """Those that are written down under a name of their own."""
    return [rule for rule in rules() if rule.severity is None]


def alerts() -> list[Rule]:
    """Those that tell somebody."""
    return [rule for rule in rules() if rule.severity is not None]


def alert_names() -> list[str]:
    """Each once: some are told with two severities."""
    return sorted({alert.name for alert in alerts()})


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
