"""Exponential backoff with jitter, an attempt limit and a give-up time.

Computes delays only: clock, jitter and waiting belong to the caller.
"""

import math

NEVER = math.inf
LONGEST_S = 30.0  # the usual bound of a delay


class Backoff:
    """The consecutive failures of one operation, and the delay before its next attempt.

    The first delay is `initial_s`, even above `max_s`. Each later one is the previous one times
    `multiplier`, truncated to whole milliseconds, at most `max_s`.
    """

    def __init__(
        self,
        *,
        initial_s: float = 0.5,
        max_s: float = LONGEST_S,
        multiplier: float = 2.0,
        max_retries: float = math.inf,
        give_up_after_s: float = math.inf,
    ) -> None:
        self.failures = 0
        self._initial_ms = round(initial_s * 1000)
        self._max_ms = round(max_s * 1000)
        self._multiplier = multiplier
        self._max_retries = max_retries
        self._give_up_after_s = give_up_after_s
        self._failing_since = 0.0  # the first of the consecutive failures

    def can_retry(self, attempts: int) -> bool:
        """Whether another attempt is allowed after this many attempts."""
        return attempts <= self._max_retries

    def delay_s(self, attempts: int) -> float:
        """The delay after this attempt (1 is the first), without jitter."""
        delay_ms = self._initial_ms
        for _ in range(attempts - 1):
            longer_ms = min(int(delay_ms * self._multiplier), self._max_ms)
            if longer_ms == delay_ms:
                break
            delay_ms = longer_ms
        return delay_ms / 1000

    def on_success(self) -> None:
        """Reset: the next failure is the first of a new outage."""
        self.failures = 0

    def on_failure(self, jitter: float, *, now: float = 0.0) -> float:
        """Seconds until the next attempt; NEVER after the give-up time.

        `jitter` in [0, 1) spreads the delay over its upper half. `now` is monotonic seconds, used
        for the give-up time only.
        """
        if not self.failures:
            self._failing_since = now
        left_s = self._failing_since + self._give_up_after_s - now
        if left_s <= 0:
            return NEVER
        self.failures += 1
        return min(jittered(self.delay_s(self.failures), jitter), left_s)


def jittered(delay_s: float, jitter: float) -> float:
    """The delay spread over its upper half by a number in [0, 1)."""
    return delay_s * (0.5 + jitter / 2)


def reopening_backoff(give_up_after_s: float) -> Backoff:
    """The delays of a client between attempts to reach a sidecar, or to open a channel."""
    return Backoff(initial_s=0.05, max_s=2.0, give_up_after_s=give_up_after_s)
