"""What the tests of findings share: a matter, and a short form of what was found.

Not a test.
"""

from collections.abc import AsyncIterator, Iterable

from service.doctor.finding import Finding, Matter

MATTER = Matter("check", "subject")


def severities(findings: Iterable[Finding]) -> list[str]:
    """How bad each is."""
    return [finding.severity.value for finding in findings]


async def gathered(findings: AsyncIterator[Finding]) -> list[Finding]:
    """All that a check finds."""
    return [finding async for finding in findings]
