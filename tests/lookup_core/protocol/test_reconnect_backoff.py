"""When to try again, and when to give up."""

import pytest

from lookup_core.backoff import ReconnectBackoff


def test_delays_double_up_to_a_bound() -> None:
    """Without luck the delay is half of an exponential one that ends at two seconds."""
    backoff = ReconnectBackoff(give_up_after_s=1000.0)

    delays = [backoff.on_failure(0.0, jitter=0.0) for _ in range(8)]

    assert delays == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_spreads_the_upper_half() -> None:
    """The same number of failures gives different delays to different clients."""
    assert ReconnectBackoff(9.0).on_failure(0.0, jitter=0.5) == pytest.approx(0.0375)


def test_gives_up_after_so_long() -> None:
    """The time counts from the first failure in a row; the last wait ends with it."""
    backoff = ReconnectBackoff(give_up_after_s=1.0)
    backoff.on_failure(10.0, jitter=0.0)

    assert backoff.on_failure(10.99, jitter=0.0) == pytest.approx(0.01)
    assert backoff.on_failure(11.0, jitter=0.0) is None


def test_success_begins_anew() -> None:
    """After a success neither the delay nor the time is held against the next failure."""
    backoff = ReconnectBackoff(give_up_after_s=1.0)
    backoff.on_failure(10.0, jitter=0.0)
    backoff.on_failure(10.5, jitter=0.0)

    backoff.on_success()

    assert backoff.on_failure(99.0, jitter=0.0) == 0.025


def test_many_failures_stay_countable() -> None:
    """A very long outage overflows nothing."""
    backoff = ReconnectBackoff(give_up_after_s=1e9)

    assert {backoff.on_failure(1.0, jitter=0.0) for _ in range(2000)} == {
        *(0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
    }
