"""Findings of the doctor: severity, subject, message, remedy, and the report of all findings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lookup_core.errors import BackendError, ErrorCode


class Severity(StrEnum):
    """Severity of a finding; only errors change the exit code."""

    OK = "ok"
    WARNING = "warning"  # works with a restriction, or may fail later
    ERROR = "error"  # does not work, or returns unreliable data
    SKIPPED = "skipped"  # cannot be checked from here


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check for one subject; only an `ok` finding has no remedy."""

    check: str
    subject: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Name of a check and of the thing that it inspects; creates the findings on it."""

    check: str
    name: str

    def ok(self, message: str) -> Finding:
        """Return a finding without a fault."""
        return Finding(self.check, self.name, Severity.OK, message)

    def warning(self, message: str, remedy: str) -> Finding:
        """Return a finding on a restriction or a later failure."""
        return Finding(self.check, self.name, Severity.WARNING, message, remedy)

    def error(self, message: str, remedy: str) -> Finding:
        """Return a finding on a failure."""
        return Finding(self.check, self.name, Severity.ERROR, message, remedy)

    def skipped(self, message: str, remedy: str) -> Finding:
        """Return a finding on a missing check; the remedy makes the check possible."""
        return Finding(self.check, self.name, Severity.SKIPPED, message, remedy)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order of their checks."""

    findings: Sequence[Finding]

    @property
    def summary(self) -> dict[str, int]:
        """Number of findings of each severity."""
        counts = Counter(finding.severity for finding in self.findings)
        return {severity.value: counts[severity] for severity in Severity}

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return findings and summary as JSON values."""
        return {"findings": [asdict(each) for each in self.findings], "summary": self.summary}


_REMEDIES = {
    ErrorCode.BACKEND_UNAVAILABLE: "check that it runs; check its address, TLS and firewalls",
    ErrorCode.CONNECTION_LOST: "check that it runs, and that no proxy or firewall cuts connections",
    ErrorCode.TIMEOUT: "check the server for overload, and the table for locks",
    ErrorCode.BACKEND_AUTH: "correct user and password in the secret, or the server's access rules",
    ErrorCode.FORBIDDEN: "grant the sidecar's user the right to read it",
    ErrorCode.TABLE_UNAVAILABLE: "correct the name in the configuration, or create the table",
}
_HIDDEN_ROWS = "row-level security"  # part of the connector's message
# The service refuses such tables for every policy: a hidden row would be reported as missing.
_HIDDEN_ROWS_REMEDY = (
    "if the sidecar may read all rows: ALTER TABLE … DISABLE ROW LEVEL SECURITY; otherwise name a "
    "table without row-level security that triggers or a job fill with the permitted rows (a view "
    "or a policy is not enough)"
)
_OTHER_REMEDY = "see the log of the backend"


def error_finding(subject: Subject, error: BackendError, *, remedy: str = "") -> Finding:
    """Return the error as a finding; text after a semicolon in the error is its remedy."""
    reason, _, own = error.detail.partition("; ")
    if _HIDDEN_ROWS in reason:
        remedy = own or _HIDDEN_ROWS_REMEDY  # a grant does not show hidden rows
    return subject.error(reason, remedy or own or _REMEDIES.get(error.code, _OTHER_REMEDY))
