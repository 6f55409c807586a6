"""Findings of the doctor: severity, subject, remedy, and the report of all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lookup_core.errors import BackendError, ErrorCode


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, but not as it should, or not for long
    ERROR = "error"
    SKIPPED = "skipped"  # it could not be looked at from here


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says of one subject; only what is well needs no remedy."""

    check: str
    subject: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at, and by which check; makes the findings of it."""

    check: str
    subject: str

    def ok(self, message: str) -> Finding:
        """It is well."""
        return Finding(self.check, self.subject, Severity.OK, message)

    def warning(self, message: str, remedy: str) -> Finding:
        """It works, but not as it should, or not for long."""
        return Finding(self.check, self.subject, Severity.WARNING, message, remedy)

    def error(self, message: str, remedy: str) -> Finding:
        """It does not work, or the data are not to be relied on."""
        return Finding(self.check, self.subject, Severity.ERROR, message, remedy)

    def skipped(self, message: str, remedy: str) -> Finding:
        """It could not be looked at; the remedy says how it can be."""
        return Finding(self.check, self.subject, Severity.SKIPPED, message, remedy)


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


_REMEDIES = {
    ErrorCode.BACKEND_UNAVAILABLE: "see that it runs, and that address, TLS and firewalls fit",
    ErrorCode.CONNECTION_LOST: "see that it runs, and that nothing between cuts connections",
    ErrorCode.TIMEOUT: "see that it is not overloaded, and that no lock is held on the table",
    ErrorCode.BACKEND_AUTH: "correct user and password in the secret, or the server's rules",
    ErrorCode.FORBIDDEN: "give the sidecar's user the right to read it",
    ErrorCode.TABLE_UNAVAILABLE: "correct the name in the configuration, or create it",
}
_HIDDEN_ROWS = "row-level security"  # the adapter's words; the name is right then
# The service refuses it whatever the policies say: a row that one hides would look missing.
_HIDDEN_ROWS_REMEDY = (
    "ALTER TABLE … DISABLE ROW LEVEL SECURITY, if all rows may be seen; else name a table without "
    "it that holds what may be (no policy is enough, and no view: a copy that triggers or a job "
    "keep)"
)
_OTHER_REMEDY = "see the log of the store"


def trouble(matter: Subject, error: BackendError, *, remedy: str = "") -> Finding:
    """The error as a finding; what stands behind a semicolon in its text is its remedy."""
    reason, _, own = error.detail.partition("; ")
    hidden = _HIDDEN_ROWS_REMEDY if _HIDDEN_ROWS in reason else ""
    return matter.error(reason, remedy or own or hidden or _REMEDIES.get(error.code, _OTHER_REMEDY))
