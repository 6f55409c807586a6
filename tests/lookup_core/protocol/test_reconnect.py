"""Limits of one connection: the backoff of a client that reconnects, and the rate of its pings."""

import pytest

from lookup_core.backoff import ReconnectBackoff
from lookup_core.protocol.server_channel import BURST, PER_SECOND, PingRateLimit

DELAYS = [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0]


def test_delays_double_up_to_a_bound() -> None:
    """Delays double from 50 ms to 2 s, also in a long outage; jitter spreads their upper half."""
    backoff, other = ReconnectBackoff(give_up_after_s=1e9), ReconnectBackoff(9.0)

    delays = [backoff.on_failure(0.0, jitter=0.0) for _ in range(2000)]

    assert delays == [*DELAYS, *[1.0] * 1993]
    assert other.on_failure(0.0, jitter=0.5) == pytest.approx(0.0375)


def test_backoff_gives_up_in_time() -> None:
    """The limit counts from the first failure in a row; the last delay ends with it."""
    backoff = ReconnectBackoff(give_up_after_s=1.0)

    delays = [backoff.on_failure(now, jitter=0.0) for now in (10.0, 10.5, 10.99, 11.0)]

    assert delays == [0.025, 0.05, pytest.approx(0.01), None]


def test_success_resets_the_backoff() -> None:
    """After a success, delay and limit start again."""
    backoff = ReconnectBackoff(give_up_after_s=1.0)
    backoff.on_failure(10.0, jitter=0.0)
    backoff.on_failure(10.5, jitter=0.0)

    backoff.on_success()

    assert backoff.on_failure(99.0, jitter=0.0) == 0.025


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
