"""How far another machine's clock is from this one's, and what that would lead to.

Asks nobody: who has an answer with a time in it tells it here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from service.doctor.finding import Finding, Subject

WARNING_S = 1.0
ERROR_S = 10.0
_REMEDY = "synchronise the clocks of both machines (NTP, chrony)"
_WHY = (
    "ages of feeds, `wait_for_dimension` and as-of lookups compare clocks; "
    "times to live do not, they are monotonic"
)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The other's clock, and this one's before it was asked and after; seconds since the epoch."""

    asked_s: float
    answered_s: float
    other_s: float
    resolution_s: float = 0.0  # what is cut off from the other's time at most

    @property
    def skew_s(self) -> float:
        """How far the other is ahead, as little as it can be; negative where it is behind."""
        middle_s = (self.asked_s + self.answered_s) / 2
        ahead_s = self.other_s - middle_s
        if -self.resolution_s <= ahead_s <= 0:
            return 0.0
        return ahead_s if ahead_s > 0 else ahead_s + self.resolution_s


def clock_findings(matter: Subject, reading: ClockReading) -> Iterator[Finding]:
    """What the distance means; half of the time that the answer took may be an error of it."""
    skew_s = reading.skew_s
    doubt_s = (reading.answered_s - reading.asked_s) / 2
    direction = "ahead of" if skew_s > 0 else "behind"
    text = f"its clock is {abs(skew_s):.1f} s {direction} this one (±{doubt_s:.1f} s): {_WHY}"
    if abs(skew_s) - doubt_s > ERROR_S:
        yield matter.error(text, _REMEDY)
    elif abs(skew_s) - doubt_s > WARNING_S:
        yield matter.warning(text, _REMEDY)
    else:
        yield matter.ok(f"its clock agrees with this one, within {WARNING_S:g} s")
