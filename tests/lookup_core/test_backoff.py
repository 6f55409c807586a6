"""Backoff: the delays between attempts, and their end."""

import pytest

from lookup_core.backoff import NEVER, Backoff


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(), [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]),
        (Backoff(initial_s=0.05, max_s=2.0), [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (Backoff(initial_s=3.0, max_s=1.0), [1.5, *[0.5] * 7]),
    ],
    ids=["default", "reconnect", "first above the limit"],
)
def test_delays_double_up_to_a_bound(backoff: Backoff, delays: list[float]) -> None:
    """Each delay is twice the former one; the lower half of it without jitter."""
    assert [backoff.on_failure(0.0) for _ in delays] == delays


def test_failures_end_at_the_give_up_time() -> None:
    """The time counts from the first consecutive failure; the last delay ends with it."""
    backoff = Backoff(initial_s=0.05, give_up_after_s=1.0)
    backoff.on_failure(0.0, now=10.0)

    assert backoff.on_failure(0.0, now=10.99) == pytest.approx(0.01)
    assert backoff.on_failure(0.0, now=11.0) == NEVER


def test_success_restarts_delays_and_time() -> None:
    """After a success the next failure is the first one of a new outage."""
    backoff = Backoff(initial_s=0.05, give_up_after_s=1.0)
    for now in (10.0, 10.5):
        backoff.on_failure(0.0, now=now)

    backoff.on_success()

    assert (backoff.failures, backoff.on_failure(0.0, now=99.0)) == (0, 0.025)
    assert backoff.failures == 1


def test_long_outage_keeps_the_longest_delay() -> None:
    """Thousands of failures neither overflow nor get slow; jitter adds up to the other half."""
    backoff = Backoff(initial_s=0.05, max_s=2.0)

    assert [backoff.on_failure(0.0) for _ in range(2000)][-1] == 1.0
    assert backoff.on_failure(0.5) == 1.5
