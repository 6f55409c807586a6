"""Clocks that differ."""

import pytest

from service.doctor.sidecar.clock import ClockReading, clock_findings
from tests.service.doctor.findings import MATTER, severities


@pytest.mark.parametrize(
    ("other_s", "severity"),
    [
        *[(100.0, "ok"), (101.0, "ok"), (99.0, "ok")],
        *[(101.01, "warning"), (98.99, "warning"), (110.0, "warning"), (90.0, "warning")],
        *[(110.01, "error"), (89.99, "error")],
    ],
)
def test_borders_are_one_and_ten_seconds(other_s: float, severity: str) -> None:
    """Up to a second is well, up to ten a warning, beyond an error; in both directions."""
    (finding,) = clock_findings(MATTER, ClockReading(100.0, 100.0, other_s))

    assert finding.severity == severity


def test_time_on_the_way_is_no_skew() -> None:
    """The other's clock was read in the middle of the way, give or take half of it."""
    slow = ClockReading(100.0, 104.0, 104.5)

    assert slow.skew_s == 2.5
    assert severities(clock_findings(MATTER, slow)) == ["ok"]


@pytest.mark.parametrize(("other_s", "skew_s"), [(99.0, 0.0), (98.0, -1.0), (102.0, 2.0)])
def test_seconds_that_are_cut_off_are_no_skew(other_s: float, skew_s: float) -> None:
    """A time to the second may be behind by one without being wrong."""
    assert ClockReading(100.0, 100.0, other_s, resolution_s=1.0).skew_s == skew_s


def test_direction_and_reason_are_told() -> None:
    """Who is ahead of whom, and what it would spoil, stand in the finding."""
    (finding,) = clock_findings(MATTER, ClockReading(100.0, 100.0, 80.0))

    assert finding.message.startswith("its clock is 20.0 s behind this one (±0.0 s): ages of feeds")
