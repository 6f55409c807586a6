"""The doctor's findings as a table for people; a remedy stands below what it is for.

For programs there is `--json`.
"""

from collections.abc import Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from service.commands.answer_table import shown
from service.doctor.finding import Finding, Severity

MARKS = {  # {severity: (what says it without colours, its colour)}
    Severity.OK: ("✓ ok", "green"),
    Severity.WARNING: ("! warning", "yellow"),
    Severity.ERROR: ("✗ error", "red"),
    Severity.SKIPPED: ("- skipped", "dim"),
}


def findings_table(findings: Sequence[Finding]) -> Table:
    """A section for each check, in the order of their first findings."""
    table = Table("check", "", "subject", "finding")
    order = {check: place for place, check in reversed(list(enumerate(_checks(findings))))}
    by_check = sorted(findings, key=lambda finding: order[finding.check])
    for check, group in groupby(by_check, key=lambda finding: finding.check):
        for place, finding in enumerate(group):
            mark, colour = MARKS[finding.severity]
            cells = (shown("" if place else check), Text(mark, colour))
            table.add_row(*cells, shown(finding.subject), _told(finding))
        table.add_section()
    return table


def summary_line(summary: dict[str, int]) -> str:
    """How many there are of each kind: `2 errors, 1 warning, 0 skipped, 9 ok`."""
    errors, warnings = summary["error"], summary["warning"]
    return (
        f"{errors} error{'' if errors == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}, "
        f"{summary['skipped']} skipped, {summary['ok']} ok"
    )


def _checks(findings: Sequence[Finding]) -> list[str]:
    return [finding.check for finding in findings]


def _told(finding: Finding) -> Text:
    if not finding.remedy:
        return shown(finding.message)
    return Text("\n").join([shown(finding.message), Text("→ ") + shown(finding.remedy)])
