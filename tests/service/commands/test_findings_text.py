"""Findings as lines."""

import pytest

from service.commands.doctor_io import findings_text, print_findings, summary_line
from service.doctor.finding import Subject

TABLE, DATABASE = Subject("table", "a"), Subject("database", "h")
SKIPPED = TABLE.skipped("is unknown", "look")


def test_checks_are_grouped() -> None:
    """Findings of one check stand together, where its first is; a remedy stands below its own."""
    findings = [TABLE.ok("is well"), DATABASE.error("is away", "start it"), TABLE.warning("b", "c")]

    assert findings_text([*findings, SKIPPED]).plain.splitlines() == [
        "✓ ok      table a: is well",
        "! warning table a: b",
        "  → c",
        "- skipped table a: is unknown",
        "  → look",
        "✗ error   database h: is away",
        "  → start it",
    ]


def test_narrow_terminals_cut_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Subjects are whole, and a command stays on one line, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "20")
    subject, command = "/long" * 30, "run this " * 30 + "now"

    print_findings([Subject("configuration", subject).error("is wrong", command)])

    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"✗ error   configuration {subject}: is wrong", f"  → {command}"]


def test_texts_change_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What comes from elsewhere is shown as it is, and never obeyed."""
    print_findings([TABLE.error("[red]\x1b[2J", "\x07")])

    assert capsys.readouterr().out == "✗ error   table a: [red]\\x1b[2J\n  → \\x07\n"


@pytest.mark.parametrize(("errors", "text"), [(1, "1 error, "), (2, "2 errors, "), (0, "0 err")])
def test_summary_counts(errors: int, text: str) -> None:
    """One line for the end."""
    counts = {"ok": 3, "warning": 1, "error": errors, "skipped": 0}

    line = summary_line(counts)

    assert line.startswith(text)
    assert line.endswith(", 1 warning, 0 skipped, 3 ok")
