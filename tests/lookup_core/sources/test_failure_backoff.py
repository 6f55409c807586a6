"""Pauses after failures."""

from lookup_core.backoff import FailureBackoff


def test_pauses_double_up_to_half_a_minute() -> None:
    """From 0.5 s on, each twice as long as the one before, 30 s in the end."""
    backoff = FailureBackoff()

    pauses = [backoff.on_failure(1.0) for _ in range(8)]

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.failures == 8


def test_jitter_spreads_the_upper_half() -> None:
    """A pause is at least half of what it may be."""
    assert FailureBackoff().on_failure(0.0) == 0.25
    assert FailureBackoff().on_failure(0.5) == 0.375


def test_success_begins_anew() -> None:
    """A failure after something went well is a first one."""
    backoff = FailureBackoff()
    backoff.on_failure(1.0)
    backoff.on_success()

    assert (backoff.failures, backoff.on_failure(1.0)) == (0, 0.5)
