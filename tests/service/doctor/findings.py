"""A subject for tests, and findings as short texts."""

from collections.abc import AsyncIterator, Iterable

from service.doctor.check_runner import CheckResult
from service.doctor.finding import Finding, Subject

SUBJECT = Subject("check", "subject")


def severities(findings: Iterable[Finding]) -> list[str]:
    """The severity of each finding."""
    return [finding.severity.value for finding in findings]


def texts(findings: Iterable[Finding]) -> list[str]:
    """Each finding as a line, with its remedy below; the subject of tests is left out."""
    lines = []
    for each in findings:
        subject = Subject(each.check, each.subject)
        place = "" if subject == SUBJECT else f" {each.check} {each.subject}"
        lines.append(f"{each.severity.value}{place}: {each.message}")
        lines += [f"  → {each.remedy}"] if each.remedy else []
    return lines


async def gathered(results: AsyncIterator[CheckResult]) -> list[Finding]:
    """The findings of a check."""
    return [each async for each in results if isinstance(each, Finding)]
