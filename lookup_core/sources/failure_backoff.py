"""How long what failed to read is left alone: twice as long each time, from 0.5 s to 30 s.

Counts only; who waits, and who gives up, stands elsewhere.
"""

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
