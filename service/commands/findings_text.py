"""The doctor's findings as lines for people; a remedy has a line of its own, to be copied.

For programs there is `--json`.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from service.commands.answer_table import shown
from service.doctor.finding import Finding, Severity

MARKS = {  # {severity: (what says it without colours, its colour)}
    Severity.OK: ("✓ ok", "green"),
    Severity.WARNING: ("! warning", "yellow"),
    Severity.ERROR: ("✗ error", "red"),
    Severity.SKIPPED: ("- skipped", "dim"),
}
_MARK_WIDTH = max(len(mark) for mark, _ in MARKS.values())


def print_findings(findings: Sequence[Finding]) -> None:
    """Print them on stdout; lines are as long as they are, and only a terminal folds them."""
    Console().print(findings_text(findings), soft_wrap=True)


def findings_text(findings: Sequence[Finding]) -> Text:
    """Those of one check together, in the order of their first findings."""
    checks = list(dict.fromkeys(finding.check for finding in findings))
    by_check = sorted(findings, key=lambda finding: checks.index(finding.check))
    return Text("\n").join(line for finding in by_check for line in _lines(finding))


def summary_line(summary: dict[str, int]) -> str:
    """How many there are of each kind: `2 errors, 1 warning, 0 skipped, 9 ok`."""
    errors, warnings = summary["error"], summary["warning"]
    return (
        f"{errors} error{'' if errors == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}, "
        f"{summary['skipped']} skipped, {summary['ok']} ok"
    )


def _lines(finding: Finding) -> Iterator[Text]:
    mark, colour = MARKS[finding.severity]
    matter = shown(f"{finding.check} {finding.subject}: ")
    matter.stylize("bold")
    yield Text.assemble((mark.ljust(_MARK_WIDTH), colour), " ", matter, shown(finding.message))
    if finding.remedy:
        yield Text("  → ") + shown(finding.remedy)
