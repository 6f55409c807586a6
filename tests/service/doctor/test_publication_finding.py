"""The doctor's finding on the publications of a followed table."""

import pytest

from service.connectors.postgres.changelog import Publications
from service.doctor.backends.table_check import publication_finding
from service.doctor.finding import Severity, Subject


@pytest.mark.parametrize(
    ("found", "severity", "text"),
    [
        (Publications(("p",)), Severity.OK, "publication p reports all changes"),
        (Publications(), Severity.WARNING, "the database has no publication"),
        (Publications(("p",), ("q has a filter",)), Severity.WARNING, "but q has a filter"),
    ],
)
def test_unknown_publications_are_warnings(
    found: Publications, severity: Severity, text: str
) -> None:
    """A table whose connector may use an incomplete publication, or none, has a warning."""
    finding = publication_finding(Subject("publication", "customers"), found)

    assert finding.severity is severity
    assert text in finding.message
