"""Errors of stores as findings."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.doctor.finding import trouble
from tests.service.doctor.findings import MATTER

MISSING = BackendError(ErrorCode.TABLE_UNAVAILABLE, "t: no such table; did you mean u?")

HIDDEN = BackendError(
    ErrorCode.TABLE_UNAVAILABLE, "t: row-level security hides rows of it from this role"
)


@pytest.mark.parametrize(
    ("error", "given", "remedy"),
    [
        (MISSING, "", "did you mean u?"),
        (MISSING, "look", "look"),
        (BackendError(ErrorCode.TABLE_UNAVAILABLE, "t"), "", "correct the name"),
        (BackendError(ErrorCode.INTERNAL, "t"), "", "see the log of the store"),
        (HIDDEN, "", "ALTER TABLE … DISABLE ROW LEVEL SECURITY"),
    ],
)
def test_every_error_has_a_remedy(error: BackendError, given: str, remedy: str) -> None:
    """The one that is given, else the one in its text, else that of its code."""
    finding = trouble(MATTER, error, remedy=given)

    assert finding.severity == "error"
    assert finding.message == error.detail.partition("; ")[0]
    assert finding.remedy.startswith(remedy)
