"""When the backend is asked again: errors and absences, each by its own strategy."""

import pytest

from lookup_core.dimension.retries import NEVER, RetryPolicy
from lookup_core.errors import ErrorCode
from lookup_core.settings import OnMissingSettings, RetrySettings

DOWN = ErrorCode.BACKEND_UNAVAILABLE
POLICY = RetryPolicy(
    RetrySettings(
        max_retries=3,
        initial_s=1.0,
        max_s=3.0,
        multiplier=2.0,
        on_missing=OnMissingSettings(max_retries=2, delay_s=0.25),
    )
)


def failure_times(policy: RetryPolicy, count: int) -> list[float]:
    """When a query is tried again after each of its failures at 10 s, with the whole delay."""
    return [
        policy.after_failure(failures, code=DOWN, now=10.0, jitter=1.0)
        for failures in range(1, count + 1)
    ]


def test_failures_back_off() -> None:
    """Each delay is a multiple of the one before, up to the longest; then there is no other try."""
    assert failure_times(POLICY, 4) == [11.0, 12.0, 13.0, NEVER]


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        (RetrySettings(max_retries=0), [NEVER]),
        (RetrySettings(max_retries=2, initial_s=0.5, multiplier=1.0), [10.5, 10.5, NEVER]),
        (RetrySettings(max_retries=2, initial_s=0.5, max_s=9.0), [10.5, 11.0, NEVER]),
    ],
    ids=["none", "fixed", "exponential"],
)
def test_settings_express_each_strategy(settings: RetrySettings, times: list[float]) -> None:
    """No retries, a fixed delay and a growing one are all said with the same words."""
    assert failure_times(RetryPolicy(settings), len(times)) == times


@pytest.mark.parametrize(("jitter", "time"), [(0.0, 10.5), (0.5, 10.75), (1.0, 11.0)])
def test_jitter_spreads_the_upper_half(jitter: float, time: float) -> None:
    """The delay lies between its half and its whole."""
    assert POLICY.after_failure(1, code=DOWN, now=10.0, jitter=jitter) == time


def test_hopeless_errors_are_final() -> None:
    """What another try cannot mend is not tried again."""
    assert POLICY.after_failure(1, code=ErrorCode.FORBIDDEN, now=10.0, jitter=0.0) == NEVER


def test_missing_rows_are_asked_for_at_a_fixed_delay() -> None:
    """An absence has its own number of tries, always after the same time."""
    assert [POLICY.after_miss(misses, now=10.0) for misses in (1, 2, 3)] == [10.25, 10.25, NEVER]


def test_absence_is_an_answer_by_default() -> None:
    """Who says nothing gets `missing` at once."""
    assert RetryPolicy(RetrySettings()).after_miss(1, now=10.0) == NEVER
