"""Replays one case of `retry*.json` against our retry strategy.

Knows what the words of a case mean; which cases there are is `test_vectors`' business.
"""

from collections.abc import Callable
from typing import Any

from lookup_core.backoff import RetryStrategy


def replay_retry(case: dict[str, Any]) -> None:
    """The strategy allows the retries that the case says, after the delays that it says."""
    words, expected = dict(case["strategy"]), case["expected"]
    strategy = _STRATEGIES[words.pop("type")](**words)
    for _ in range(2):  # asking again gives the same
        allowed = {number: strategy.can_retry(int(number)) for number in expected["can_retry"]}
        delays = [strategy.delay_ms(n + 1) for n in range(len(expected["delay_after_attempt_ms"]))]
        assert {"can_retry": allowed, "delay_after_attempt_ms": delays} == expected


def _no_retry() -> RetryStrategy:
    return RetryStrategy()


def _fixed_delay(*, max_attempts: int, delay_ms: int) -> RetryStrategy:
    return RetryStrategy(max_attempts, delay_ms, max_ms=delay_ms)


def _exponential_backoff(
    *, max_attempts: int, initial_delay_ms: int, max_delay_ms: int, multiplier: float
) -> RetryStrategy:
    return RetryStrategy(max_attempts, initial_delay_ms, max_ms=max_delay_ms, multiplier=multiplier)


_STRATEGIES: dict[str, Callable[..., RetryStrategy]] = {
    "none": _no_retry,
    "fixed_delay": _fixed_delay,
    "exponential_backoff": _exponential_backoff,
}
