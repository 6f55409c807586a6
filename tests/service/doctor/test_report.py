"""What all findings come to."""

import json

from service.doctor.finding import Report, Subject

MATTER = Subject("socket", "/s")


def test_every_severity_is_counted() -> None:
    """Those that nothing has are counted as none."""
    report = Report([MATTER.ok("a"), MATTER.ok("b"), MATTER.warning("c", "d")])

    assert report.summary == {"ok": 2, "warning": 1, "error": 0, "skipped": 0}


def test_errors_alone_are_wrong() -> None:
    """Warnings and what is skipped are not."""
    assert not Report([MATTER.warning("a", "b"), MATTER.skipped("a", "b")]).has_errors
    assert Report([MATTER.ok("a"), MATTER.error("a", "b")]).has_errors


def test_report_is_plain_json() -> None:
    """Findings with all their fields, and the summary."""
    told = json.loads(json.dumps(Report([MATTER.error("is not", "mend it")]).as_json()))

    assert told["findings"] == [
        {
            "check": "socket",
            "subject": "/s",
            "severity": "error",
            "message": "is not",
            "remedy": "mend it",
        }
    ]
    assert told["summary"]["error"] == 1
