"""Findings of the doctor: severity, subject, message, remedy, and faults that are reported once."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lookup_core.errors import BackendError, ConfigurationError, ErrorCode

_DIMENSION_CHECKS = frozenset({"table", "index", "key", "publication", "privileges", "listen"})
_BACKEND_CHECKS = frozenset({"database", "table", "index", "listen", "kafka"})
_REMEDIES = {  # where those of the codes do not fit a check
    ErrorCode.TIMEOUT: "check the server for overload, and the table for locks",
    ErrorCode.SCHEMA_CHANGED: "run the doctor again; a sidecar reads the schema again by itself",
    ErrorCode.INTERNAL: "see the log of the backend",
}
_HIDDEN_ROWS = "row-level security"  # part of the connector's message
# The service refuses such tables for every policy: a hidden row would be reported as missing.
_HIDDEN_ROWS_REMEDY = (
    "if the sidecar may read all rows: ALTER TABLE … DISABLE ROW LEVEL SECURITY; otherwise name a "
    "table without row-level security that triggers or a job fill with the permitted rows (a view "
    "or a policy is not enough)"
)


class Severity(StrEnum):
    """Severity of a finding; only errors change the exit code."""

    OK = "ok"
    WARNING = "warning"  # works with a restriction, or may fail later
    ERROR = "error"  # does not work, or returns unreliable data
    SKIPPED = "skipped"  # cannot be checked from here

    @property
    def is_fault(self) -> bool:
        """Whether the finding needs a remedy."""
        return self in {Severity.WARNING, Severity.ERROR}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check for one subject; only an `ok` finding has no remedy."""

    check: str
    subject: str
    severity: Severity
    message: str
    remedy: str = ""

    @property
    def place(self) -> str:
        """Check and subject, for people."""
        if self.check in _DIMENSION_CHECKS:
            return f'{self.check} of dimension "{self.subject}"'
        if self.subject.startswith(f"the {self.check} "):
            return self.subject.removeprefix("the ")
        return f"{self.check} {self.subject}"


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


def without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; a sidecar's are skipped if a check of its backends found the same fault."""
    roots = [each for each in findings if each.check in _BACKEND_CHECKS and each.severity.is_fault]
    return [_skipped_if_repeated(finding, roots) for finding in findings]


def _skipped_if_repeated(finding: Finding, roots: Sequence[Finding]) -> Finding:
    if finding.check != "sidecar" or not finding.severity.is_fault:
        return finding
    for root in roots:
        is_its_own = root.check == "database" or root.subject.partition(": ")[0] == finding.subject
        # A sidecar words the fault of an unusable table in its own way, or names another one.
        is_unusable = root.check == "table" and root.severity is finding.severity is Severity.ERROR
        if is_its_own and (is_unusable or root.message in finding.message):
            reason = f"was not checked further, because of the fault of the {root.place}"
            return Subject(finding.check, finding.subject).skipped(reason, "see its finding")
    return finding


def error_finding(subject: Subject, error: BackendError, *, remedy: str = "") -> Finding:
    """Return the error as a finding; text after a semicolon in the error is its remedy."""
    reason, _, own = error.detail.partition("; ")
    if own.startswith("available: "):
        reason, own = error.detail, "correct the name in the configuration"
    if _HIDDEN_ROWS in reason:
        remedy = own or _HIDDEN_ROWS_REMEDY  # a grant does not show hidden rows
    return subject.error(reason, remedy or own or _REMEDIES.get(error.code, error.code.remedy))


def refusal_finding(subject: Subject, error: ConfigurationError, *, remedy: str = "") -> Finding:
    """Return the fault of a file or an option; text after a semicolon is its remedy."""
    reason, _, own = error.detail.partition("; ")
    return subject.error(reason, own or remedy)
