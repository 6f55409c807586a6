"""Token bucket: a rate limit that lets unused tokens be spent at once, up to a bound."""


class TokenBucket:
    """At most `most` tokens, full at the start; `now` is monotonic seconds."""

    def __init__(self, most: float, *, per_second: float) -> None:
        self._most = self._left = most
        self._per_second = per_second
        self._counted_at: float | None = None

    def take(self, now: float) -> bool:
        """Spend a token; False, at no cost, without a whole one."""
        self.add(0.0, now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def add(self, tokens: float, now: float) -> None:
        """Add tokens, besides those of the time since the last call."""
        seconds = 0.0 if self._counted_at is None else now - self._counted_at
        self._left = min(self._most, self._left + seconds * self._per_second + tokens)
        self._counted_at = now

    def check_invariants(self) -> None:
        """For tests."""
        assert 0 <= self._left <= self._most
