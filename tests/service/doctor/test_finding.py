"""Findings, and what makes them."""

import pytest

from service.doctor.finding import Finding, Severity, Subject

MATTER = Subject("socket", "/s")


def test_well_needs_no_remedy() -> None:
    """What is well is told without a remedy."""
    assert MATTER.ok("is served") == Finding("socket", "/s", Severity.OK, "is served")


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.ERROR, Severity.SKIPPED])
def test_all_else_has_a_remedy(severity: Severity) -> None:
    """Each other finding says what to do."""
    finding = getattr(MATTER, severity.value)("is not", "mend it")

    assert finding == Finding("socket", "/s", severity, "is not", "mend it")
