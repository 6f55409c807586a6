"""What the tests of findings share: a matter, and a short form of what was found.

Not a test.
"""

from collections.abc import AsyncIterator, Iterable

from service.doctor.check import Seen
from service.doctor.finding import Finding, Subject

MATTER = Subject("check", "subject")


def severities(findings: Iterable[Finding]) -> list[str]:
    """How bad each is."""
    return [finding.severity.value for finding in findings]


async def gathered(seen: AsyncIterator[Seen]) -> list[Finding]:
    """All that a check finds by itself."""
    return [each async for each in seen if isinstance(each, Finding)]
