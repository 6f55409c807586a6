"""Recording rules and alerts: promtool's check and cases, and what each rule has in common."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.monitoring.expressions import named_metrics, unknown_names
from tests.monitoring.rule_file import (
    CASE_FILES,
    PLAIN_NAME,
    Rule,
    alert_cases,
    alert_names,
    alerts,
    promtool,
    records,
    rules,
)
from tools.k8s.manifests import ROOT
from tools.reference.pages import RULE_FILE, plain_rules

# level:metric:operations
RECORD_NAME = re.compile(r"namespace(_dimension)?:sidelook_[a-z_]+:[a-z0-9_]+")
RUNBOOKS = ROOT / "docs" / "runbooks"


def run(command: str, text: str = "") -> str:
    """The output of a shell command in the folder of the rules."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=RULE_FILE.parent,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.full
@pytest.mark.parametrize("file", CASE_FILES, ids=lambda file: file.stem)
def test_alert_passes_its_cases(file: Path, tmp_path: Path) -> None:
    """The alert fires with exactly these labels and annotations, at exactly these times."""
    (tmp_path / PLAIN_NAME).write_text(plain_rules())
    cases = tmp_path / "cases.yaml"
    cases.write_text(file.read_text())

    tested = promtool("test", "rules", cases)

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("name", alert_names())
def test_alert_has_positive_and_negative_cases(name: str) -> None:
    """Each severity fires in at least one case, and at least two cases are silent."""
    (file,) = [file for file in CASE_FILES if file.stem == name]
    cases = alert_cases(file)

    fired = {severity for case in cases for severity in case.severities}

    assert {case.alert for case in cases} == {name}
    assert fired == {alert.severity for alert in alerts() if alert.name == name}
    assert len({case.name for case in cases if not case.severities}) >= 2


def test_cases_and_runbooks_match_the_alerts() -> None:
    """Every alert has a file of cases, a runbook, and a line in the index; nothing else has."""
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"index"}
    index = (RUNBOOKS / "index.md").read_text()

    assert [file.stem for file in CASE_FILES] == alert_names()
    assert sorted(pages) == alert_names()
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1\.md\)", index, re.MULTILINE)) == alert_names()


@pytest.mark.parametrize(
    "alert", alerts(), ids=[f"{alert.name}-{alert.severity}" for alert in alerts()]
)
def test_alert_has_severity_and_annotations(alert: Rule) -> None:
    """An alert has a severity, a duration, the namespace, a value, and its runbook."""
    annotations = dict(alert.annotations)

    assert alert.severity in {"critical", "warning"}
    assert re.fullmatch(r"\d+m", alert.lasting or "")
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert "{{ $labels.namespace }}" in annotations["summary"]
    assert "{{ $value" in annotations["description"]
    assert annotations["runbook_url"] == f"docs/runbooks/{alert.name}.md"


def test_rules_name_known_metrics() -> None:
    """Expressions name existing metrics, and records have a name of level and operation."""
    assert unknown_names([rule.expression for rule in rules()]) == []
    assert [each.name for each in records() if not RECORD_NAME.fullmatch(each.name)] == []


def test_rules_read_records_of_their_group() -> None:
    """Groups have evaluation times of their own: another group's record may be outdated."""
    group_of = {record.name: record.group for record in records()}
    edges = [(rule, name) for rule in rules() for name in named_metrics(rule.expression)]

    assert [edge for edge in edges if group_of.get(edge[1], edge[0].group) != edge[0].group] == []


def test_commands_in_the_header_work() -> None:
    """The commands for Prometheus without its operator, and for links to the runbooks."""
    text = RULE_FILE.read_text()
    (extract,) = re.findall(r"^# +(sed .*) > \S+$", text, re.MULTILINE)
    (link,) = re.findall(r"^# +(sed 's,runbook.*)$", text, re.MULTILINE)

    linked = run(link, plain_rules())

    assert run(extract) == plain_rules()
    address = "https://git.example/sidelook/blob/main"
    assert linked.count(f"runbook_url: {address}/docs/") == plain_rules().count("runbook_url:")
