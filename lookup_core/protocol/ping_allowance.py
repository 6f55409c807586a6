"""How many pings a peer may send: each one has to be answered, and none of them costs credit.

A token bucket, after those of traffic policers. Pongs are not counted: nothing answers them.
"""

BURST = 20
PER_SECOND = 2.0  # clients ping every few seconds


class PingAllowance:
    """Of one connection; `now` is monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._counted_at = now

    def take(self, now: float) -> bool:
        """Whether the peer may send a ping now; one that it may not send costs nothing."""
        left = min(self._left + (now - self._counted_at) * PER_SECOND, float(BURST))
        self._left, self._counted_at = left, now
        if left < 1:
            return False
        self._left -= 1
        return True
