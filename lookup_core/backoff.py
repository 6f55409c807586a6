"""Exponential backoff: how long to wait before the next attempt."""

from dataclasses import dataclass

_FIRST_S = 0.5
_LONGEST_S = 30.0
_MOST_DOUBLINGS = 6  # beyond, the longest pause is reached


class FailureBackoff:
    """The failures in a row of one thing."""

    def __init__(self) -> None:
        self.failures = 0

    def on_success(self) -> None:
        """It got on: the next failure is a first one again."""
        self.failures = 0

    def on_failure(self, jitter: float) -> float:
        """Seconds to wait before the next try; `jitter` in [0, 1) spreads their upper half."""
        pause_s = min(_FIRST_S * 2.0 ** min(self.failures, _MOST_DOUBLINGS), _LONGEST_S)
        self.failures += 1
        return pause_s * (0.5 + jitter / 2)


_INITIAL_S = 0.05
_LONGEST_RECONNECT_S = 2.0
_MOST_RECONNECT_DOUBLINGS = 16  # beyond, the exponent would only make the number longer


class ReconnectBackoff:
    """Counts the failures in a row, and how long they last."""

    def __init__(self, give_up_after_s: float) -> None:
        self._give_up_after_s = give_up_after_s
        self._failures = 0
        self._since_s: float | None = None  # the first of the failures in a row

    def on_success(self) -> None:
        """What follows is a new outage."""
        self._failures = 0
        self._since_s = None

    def on_failure(self, now_s: float, jitter: float) -> float | None:
        """Seconds to wait before the next try; None when the failures last too long.

        Between half of the exponential delay and all of it, so that many clients do not come at
        once; `jitter` is in [0, 1).
        """
        if self._since_s is None:
            self._since_s = now_s
        left_s = self._since_s + self._give_up_after_s - now_s
        if left_s <= 0:
            return None
        longest_s = min(
            _INITIAL_S * 2.0 ** min(self._failures, _MOST_RECONNECT_DOUBLINGS), _LONGEST_RECONNECT_S
        )
        self._failures += 1
        return min(longest_s * (0.5 + jitter / 2), left_s)


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """At most `max_retries` tries after the first one; delays in whole milliseconds.

    The first delay is `initial_ms` even above `max_ms`; each later one is the one before times
    `multiplier`, cut to whole milliseconds, at most `max_ms`. A fixed delay has multiplier 1.
    """

    max_retries: int = 0
    initial_ms: int = 0
    max_ms: int = 0
    multiplier: float = 1.0

    def can_retry(self, attempts: int) -> bool:
        """Whether another try is allowed after so many were made."""
        return attempts <= self.max_retries

    def delay_ms(self, attempts: int) -> int:
        """How long to wait after the given attempt, 1 being the first."""
        delay = self.initial_ms
        for _ in range(attempts - 1):
            delay = min(int(delay * self.multiplier), self.max_ms)
        return delay
