"""Findings as a table."""

import pytest

from service.commands.findings_table import findings_table, summary_line
from service.commands.print_table import print_table
from service.doctor.finding import Matter

TABLE, DATABASE = Matter("table", "a"), Matter("database", "h")


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of the lines that were printed, without the header."""
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_checks_are_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    """A check has one section, where its first finding is; a remedy stands below its finding."""
    findings = [TABLE.ok("is well"), DATABASE.error("is away", "start it"), TABLE.warning("b", "c")]

    print_table(findings_table(findings))

    assert printed(capsys) == [
        ["table", "✓ ok", "a", "is well"],
        ["", "! warning", "a", "b"],
        ["", "", "", "→ c"],
        ["database", "✗ error", "h", "is away"],
        ["", "", "", "→ start it"],
    ]


def test_texts_change_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What comes from elsewhere is shown as it is, and never obeyed."""
    print_table(findings_table([TABLE.error("[red]\x1b[2J", "\x07")]))

    assert printed(capsys)[0][3] == "[red]\\x1b[2J"


@pytest.mark.parametrize(("errors", "text"), [(1, "1 error, "), (2, "2 errors, "), (0, "0 err")])
def test_summary_counts(errors: int, text: str) -> None:
    """One line for the end."""
    counts = {"ok": 3, "warning": 1, "error": errors, "skipped": 0}

    line = summary_line(counts)

    assert line.startswith(text)
    assert line.endswith(", 1 warning, 0 skipped, 3 ok")
