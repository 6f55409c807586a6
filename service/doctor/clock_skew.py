"""Clock skew between this machine and a server, from one timestamped response."""

from dataclasses import dataclass

from service.doctor.finding import Finding, Subject

_WARNING_S = 1.0
_ERROR_S = 10.0
_REMEDY = "synchronise the clocks of both machines (NTP, chrony)"
_WHY = (
    "feed ages, `wait_for_dimension` and as-of lookups compare clocks; "
    "times to live use a monotonic clock"
)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Time of a server, and of this machine before and after the request; epoch seconds."""

    sent_s: float
    received_s: float
    server_s: float
    resolution_s: float = 0.0  # the server's time is truncated by less than this

    @property
    def skew_s(self) -> float:
        """Smallest possible lead of the server's clock; negative if the server is behind."""
        ahead_s = self.server_s - (self.sent_s + self.received_s) / 2
        if ahead_s > 0:
            return ahead_s
        return min(ahead_s + self.resolution_s, 0.0)


def clock_finding(subject: Subject, reading: ClockReading) -> Finding:
    """Return the severity of the skew; half of the response time is tolerated as uncertainty."""
    skew_s = reading.skew_s
    uncertainty_s = (reading.received_s - reading.sent_s) / 2
    direction = "ahead of" if skew_s > 0 else "behind"
    text = f"its clock is {abs(skew_s):.1f} s {direction} this one (±{uncertainty_s:.1f} s): {_WHY}"
    if abs(skew_s) - uncertainty_s > _ERROR_S:
        return subject.error(text, _REMEDY)
    if abs(skew_s) - uncertainty_s > _WARNING_S:
        return subject.warning(text, _REMEDY)
    return subject.ok(f"its clock agrees with this one within {_WARNING_S:g} s")
