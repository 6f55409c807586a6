"""When a query goes to the backend again: after a failure, and for keys that had no row.

Errors and absences have a strategy and a count of their own, so that neither eats the other's
tries. Only says when; who waits so long is `waiting_lookups`' business.
"""

import math

from lookup_core.dimension.retry_strategy import RetryStrategy
from lookup_core.errors import ErrorCode
from lookup_core.settings import RetrySettings

NEVER = math.inf


class RetryPolicy:
    """Both strategies of one dimension; `now` and what is returned are monotonic seconds.

    After the last try the next one is `NEVER`, which is later than anybody waits.
    """

    def __init__(self, settings: RetrySettings) -> None:
        on_missing = settings.on_missing
        self._on_failure = RetryStrategy(
            max_retries=settings.max_retries,
            initial_ms=_milliseconds(settings.initial_s),
            max_ms=_milliseconds(settings.max_s),
            multiplier=settings.multiplier,
        )
        # Without jitter: the delay is how late a row may come, not a way out of a congestion, and
        # queries that land at different times are spread already.
        self._on_missing = RetryStrategy(
            max_retries=on_missing.max_retries,
            initial_ms=_milliseconds(on_missing.delay_s),
            max_ms=_milliseconds(on_missing.delay_s),
        )

    def after_failure(self, failures: int, *, code: ErrorCode, now: float, jitter: float) -> float:
        """When to try again after so many failures, of which the last one had this code.

        `jitter` in [0, 1) spreads the delay over its upper half.
        """
        if not (code.is_retryable and self._on_failure.can_retry(failures)):
            return NEVER
        return now + self._on_failure.delay_ms(failures) / 1000 * (0.5 + jitter / 2)

    def after_miss(self, misses: int, *, now: float) -> float:
        """When to ask again for keys that had no row so often."""
        if not self._on_missing.can_retry(misses):
            return NEVER
        return now + self._on_missing.delay_ms(misses) / 1000


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
