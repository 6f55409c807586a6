"""How many pings are answered."""

from lookup_core.protocol.server_channel import BURST, PER_SECOND, PingRateLimit


def taken(allowance: PingRateLimit, now: float) -> int:
    """How many pings may come at this moment."""
    count = 0
    while allowance.take(now):
        count += 1
    return count


def test_some_pings_may_come_at_once() -> None:
    """A client that was held up sends what it had in mind; a flood ends there."""
    assert taken(PingRateLimit(5.0), 5.0) == BURST


def test_allowance_comes_back_with_time() -> None:
    """So many a second, for as long as it takes."""
    allowance = PingRateLimit(0.0)
    taken(allowance, 0.0)

    assert [taken(allowance, now) for now in (3.0, 3.25, 3.5)] == [3 * PER_SECOND, 0, 1]


def test_silence_saves_nothing_up() -> None:
    """An hour without pings allows no more than the first moment did."""
    assert taken(PingRateLimit(0.0), 3600.0) == BURST
