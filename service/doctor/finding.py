"""One thing that the doctor saw, how bad it is, and what to do about it.

Holds no secret and no key: addresses come here without their passwords.
"""

from dataclasses import dataclass
from enum import StrEnum


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
class Matter:
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
