"""Ping rate limit of one connection."""

from lookup_core.protocol.server_channel import BURST, PER_SECOND, PingRateLimit


def taken(allowance: PingRateLimit, now: float) -> int:
    """How many pings are accepted at this moment."""
    count = 0
    while allowance.take(now):
        count += 1
    return count


def test_pings_are_limited() -> None:
    """A burst of pings is accepted, later some a second; unused ones are not saved."""
    allowance = PingRateLimit(5.0)

    accepted = [taken(allowance, now) for now in (5.0, 8.0, 8.25, 8.5, 3600.0)]

    assert accepted == [BURST, 3 * PER_SECOND, 0, 1, BURST]
