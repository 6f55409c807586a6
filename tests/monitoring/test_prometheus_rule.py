"""The rules: what Prometheus' checker says of them, and what holds for each by its form."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.monitoring.expressions import known_names, named_metrics
from tests.monitoring.prometheus_programs import promtool
from tests.monitoring.rule_file import (
    PLAIN_NAME,
    ROOT,
    RULE_FILE,
    Rule,
    alert_names,
    alerts,
    plain_rules,
    records,
    rules,
)

# level:metric:operations
RECORD_NAME = re.compile(r"namespace(_dimension)?:sidelook_[a-z_]+:[a-z0-9_]+")


def name_of(rule: Rule) -> str:
    """How a test of one rule is called."""
    return rule.name if rule.severity is None else f"{rule.name}-{rule.severity}"


@pytest.mark.integration
def test_checker_accepts_all_rules(tmp_path: Path) -> None:
    """Promtool finds each rule that is written, and no fault."""
    file = tmp_path / PLAIN_NAME
    file.write_text(plain_rules())

    checked = promtool("check", "rules", file)

    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"SUCCESS: {len(rules())} rules found" in checked.stdout


@pytest.mark.integration
def test_checker_notices_a_bad_expression(tmp_path: Path) -> None:
    """It is really asked: a parenthesis too few is told."""
    file = tmp_path / PLAIN_NAME
    file.write_text(plain_rules().replace("(rate(", "(rate("[:-1], 1))

    assert promtool("check", "rules", file).returncode != 0


def test_comment_tells_how_to_do_without_the_operator() -> None:
    """The command in the file's head makes the very rules that the tests look at."""
    (command,) = re.findall(r"^# +(sed .*) > \S+$", RULE_FILE.read_text(), re.MULTILINE)
    made = subprocess.run(
        ["/bin/sh", "-c", command], cwd=RULE_FILE.parent, capture_output=True, text=True, check=True
    )

    assert made.stdout == plain_rules()


def test_comment_tells_how_to_link_the_runbooks() -> None:
    """The other command in the head puts an address before the path of every alert's page."""
    (command,) = re.findall(r"^# +(sed 's,runbook.*)$", RULE_FILE.read_text(), re.MULTILINE)
    made = subprocess.run(
        ["/bin/sh", "-c", command], input=plain_rules(), capture_output=True, text=True, check=True
    )

    address = "https://git.example/sidelook/blob/main"
    assert made.stdout.count(f"runbook_url: {address}/docs/") == plain_rules().count("runbook_url:")


def test_rules_name_known_metrics_only() -> None:
    """Nothing is asked for that no sidecar tells and no rule records."""
    named = {rule.name: named_metrics(rule.expression) - known_names() for rule in rules()}

    assert {name: unknown for name, unknown in named.items() if unknown} == {}


def test_rules_read_records_of_their_group_only() -> None:
    """Groups are evaluated at times of their own: another's record may be an interval old."""
    group_of = {record.name: record.group for record in records()}
    edges = [(rule, name) for rule in rules() for name in named_metrics(rule.expression)]

    assert [
        f"{rule.name} -> {name}"
        for rule, name in edges
        if group_of.get(name, rule.group) != rule.group
    ] == []


def test_records_are_named_by_level_and_operation() -> None:
    """The name tells by what is summed, of which metric, and how."""
    assert [each.name for each in records() if not RECORD_NAME.fullmatch(each.name)] == []


@pytest.mark.parametrize("alert", alerts(), ids=name_of)
def test_alert_says_what_a_person_needs(alert: Rule) -> None:
    """How urgent it is, where, how much, and which page says what to do."""
    annotations = dict(alert.annotations)

    assert alert.severity in {"critical", "warning"}
    assert re.fullmatch(r"\d+m", alert.lasting or "")
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert "{{ $labels.namespace }}" in annotations["summary"]
    assert "{{ $value" in annotations["description"]
    assert annotations["runbook_url"] == f"docs/runbooks/{alert.name}.md"


def test_every_alert_has_its_page() -> None:
    """One page for each alert, none for none, and the index has each in its table."""
    folder = ROOT / "docs" / "runbooks"
    pages = {page.stem for page in folder.glob("*.md")} - {"README"}
    index = re.findall(r"^\| \[(\w+)\]\(\1\.md\)", (folder / "README.md").read_text(), re.MULTILINE)

    assert sorted(pages) == alert_names()
    assert sorted(index) == alert_names()


def test_few_alerts_wake_somebody() -> None:
    """Only what fails lookups, now or within a day; the rest is for working hours."""
    urgent = {alert.name for alert in alerts() if alert.severity == "critical"}

    assert urgent == {
        "SidelookLookupErrors",
        "SidelookDimensionUnavailable",
        "SidelookMemoryPressure",
        "SidelookCertificateExpiring",
    }
