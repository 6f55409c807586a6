"""How many further tries a store is burdened with, in proportion to what it is asked anyway.

A token bucket after the retry budget of Finagle: every first try earns a part of a retry, and a
trickle allows some to those who ask rarely. Without it, retries multiply the load of a store just
when it has trouble. Does not say when to try again: see `dimension.retry_policy`.
"""

_EARNED = 0.2  # retries, by each first try
_TRICKLE = 1.0  # retries a second
_MOST = 10.0  # retries that may be saved up


class RetryBudget:
    """Retries that may be spent; begins full. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._saved = _MOST
        self._counted_at: float | None = None

    def on_first_try(self, now: float) -> None:
        """A query goes to the store for the first time."""
        self._trickle(now)
        self._saved = min(_MOST, self._saved + _EARNED)

    def take(self, now: float) -> bool:
        """Spend a retry; False if there is none."""
        self._trickle(now)
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def check_invariants(self) -> None:
        """For tests."""
        assert 0 <= self._saved <= _MOST

    def _trickle(self, now: float) -> None:
        if self._counted_at is not None:
            self._saved = min(_MOST, self._saved + _TRICKLE * (now - self._counted_at))
        self._counted_at = now
