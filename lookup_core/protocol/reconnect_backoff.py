"""When to try to connect again after a failure, and when to give up: exponential, with jitter.

Not for retries of queries: those have a budget and settings per dimension.
"""

_INITIAL_S = 0.05
_LONGEST_S = 2.0
_MOST_DOUBLINGS = 16  # beyond, the exponent would only make the number longer


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
        longest_s = min(_INITIAL_S * 2.0 ** min(self._failures, _MOST_DOUBLINGS), _LONGEST_S)
        self._failures += 1
        return min(longest_s * (0.5 + jitter / 2), left_s)
