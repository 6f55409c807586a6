"""Each alert in stories: when it tells, with which words, and when it keeps silent."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.monitoring.alert_cases import alert_cases, case_files, run_cases
from tests.monitoring.rule_file import Rule, alert_names, alerts, plain_rules

CASE_FILES = case_files()


def replaced(alert: Rule, pattern: str, by: str) -> str:
    """The rules with one thing of one alert changed."""
    head, marker, rest = plain_rules().partition(f"- alert: {alert.name}\n")
    if f"severity: {alert.severity}" not in rest.partition("- alert:")[0]:
        # Its second rule.
        middle, again, rest = rest.partition(f"- alert: {alert.name}\n")
        head, marker = f"{head}{marker}{middle}", again
    changed, count = re.subn(pattern, by, rest, count=1, flags=re.MULTILINE)
    assert count == 1
    return f"{head}{marker}{changed}"


def lowered(alert: Rule) -> str:
    """A threshold that is a little too low."""
    (threshold,) = re.findall(r"> ([\d.]+)\s*$", alert.expression)
    return replaced(alert, rf"> {re.escape(threshold)}$", f"> {float(threshold) * 0.9 - 0.001:g}")


def hurried(alert: Rule) -> str:
    """No patience."""
    return replaced(alert, r"for: \d+m$", "for: 0s")


@pytest.mark.integration
@pytest.mark.parametrize("file", CASE_FILES, ids=lambda file: file.stem)
def test_alert_does_what_its_cases_say(file: Path, tmp_path: Path) -> None:
    """With exactly these labels and annotations, at exactly these moments."""
    played = run_cases(file.read_text(), plain_rules(), tmp_path)

    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize("name", alert_names())
def test_alert_has_cases_of_both_kinds(name: str) -> None:
    """With each severity in one case at least, silent in two, all in the file of its name."""
    (file,) = [file for file in CASE_FILES if file.stem == name]
    cases = alert_cases(file)
    told = {severity for case in cases for severity in case.severities}
    silent = {case.name for case in cases if not case.severities}

    assert {case.alert for case in cases} == {name}
    assert told == {alert.severity for alert in alerts() if alert.name == name}
    assert len(silent) >= 2


def test_no_case_is_left_of_a_former_alert() -> None:
    """A file whose alert is gone goes, too."""
    assert [file.stem for file in CASE_FILES] == alert_names()


@pytest.mark.integration
@pytest.mark.parametrize("change", [lowered, hurried])
@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_cases_notice_a_changed_alert(
    alert: Rule, change: Callable[[Rule], str], tmp_path: Path
) -> None:
    """A threshold a little too low, or no patience: some case of the alert says so."""
    (file,) = [file for file in CASE_FILES if file.stem == alert.name]

    played = run_cases(file.read_text(), change(alert), tmp_path)

    assert played.returncode == 1
    assert "FAILED:" in played.stdout + played.stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    ("word", "by"), [("severity: warning", "severity: mild"), ("2 sidecars", "3 sidecars")]
)
def test_wrong_expectation_is_noticed(word: str, by: str, tmp_path: Path) -> None:
    """The checker compares labels and annotations, not only whether something is told."""
    cases = (CASE_FILES[0].parent / "SidelookBreakerOpen.yaml").read_text()
    assert word in cases

    played = run_cases(cases.replace(word, by), plain_rules(), tmp_path)

    assert played.returncode == 1
