"""When to try again, and how long to wait before: none, fixed delay, exponential backoff.

Pure functions of the attempts made so far, so that keys that retry at the same time cannot
disturb each other. Jitter is the caller's: it draws, this only says how long at most.
"""

from dataclasses import dataclass


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
