"""What all findings come to: counts, and whether anything is wrong.

Not how they are printed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from service.doctor.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, in the order of their checks."""

    findings: Sequence[Finding]

    @property
    def summary(self) -> dict[str, int]:
        """How many there are of each severity."""
        counts = Counter(finding.severity for finding in self.findings)
        return {severity.value: counts[severity] for severity in Severity}

    @property
    def has_errors(self) -> bool:
        """Whether anything is wrong; warnings are not."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"findings": [asdict(each) for each in self.findings], "summary": self.summary}
