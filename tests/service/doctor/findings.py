"""A subject for tests, and findings as short texts."""

from collections.abc import Iterable, Iterator

from service.doctor.check_runner import Inspection
from service.doctor.finding import Finding, Subject

SUBJECT = Subject("check", "subject")


def texts(findings: Iterable[Finding]) -> list[str]:
    """Each finding as a line, with its remedy below; the subject of tests is left out."""
    lines = []
    for each in findings:
        subject = Subject(each.check, each.subject)
        place = "" if subject == SUBJECT else f" {each.check} {each.subject}"
        lines.append(f"{each.severity.value}{place}: {each.message}")
        lines += [f"  → {each.remedy}"] if each.remedy else []
    return lines


async def gathered(results: Inspection) -> list[Finding]:
    """The findings of a check."""
    every = [*results] if isinstance(results, Iterator) else [each async for each in results]
    return [each for each in every if isinstance(each, Finding)]
