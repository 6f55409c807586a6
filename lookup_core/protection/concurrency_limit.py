"""How many queries may be at a store at once: adapts to what it bears, within what is allowed.

Additive increase, multiplicative decrease (Chiu, Jain 1989), on timeouts and on latency: a query
far slower than those that ran almost alone shows a queue at the store, as in the gradient limits of
Netflix. Begins at the most that is allowed: somebody chose that number for this store, and a
sidecar that restarts under load must not begin with a queue of its own. Counts no slots itself.
"""

_DECREASE = 0.7
_SLOW_FACTOR = 3.0  # times the usual latency
_LEAST_SLOW_S = 0.1  # a fast store is never throttled by noise
_BASELINE_WEIGHT = 0.1  # of a new sample


class ConcurrencyLimit:
    """A limit between 1 and `max_limit`; `now` is monotonic seconds."""

    def __init__(self, max_limit: int) -> None:
        self._max = max_limit
        self._limit = float(max_limit)
        self._decreased_at = float("-inf")
        self._baseline_s: float | None = None  # latency of queries that ran almost alone

    @property
    def limit(self) -> int:
        """How many queries may be at the store now."""
        return int(self._limit)

    def on_success(self, sent_at: float, now: float, in_flight: int) -> None:
        """A query that was sent beside so many (itself included) brought its rows.

        What was sent before the last decrease tells of the time before it, and is ignored.
        """
        if sent_at < self._decreased_at:
            return
        seconds = now - sent_at
        is_alone = in_flight <= max(1, self.limit // 2)
        if is_alone:
            self._learn(seconds)
        if not is_alone and self._is_slow(seconds):
            self.on_overload(sent_at, now)
        elif in_flight >= self.limit:
            self._limit = min(self._max, self._limit + 1 / self._limit)

    def on_overload(self, sent_at: float, now: float) -> None:
        """A query took too long, or was refused for lack of room; ignored like a success is."""
        if sent_at >= self._decreased_at:
            self._limit = max(1.0, self._limit * _DECREASE)
            self._decreased_at = now

    def check_invariants(self) -> None:
        """For tests."""
        assert 1 <= self.limit <= self._max

    def _learn(self, seconds: float) -> None:
        before = seconds if self._baseline_s is None else self._baseline_s
        self._baseline_s = before + _BASELINE_WEIGHT * (seconds - before)

    def _is_slow(self, seconds: float) -> bool:
        if self._baseline_s is None:
            return False
        return seconds > max(_LEAST_SLOW_S, _SLOW_FACTOR * self._baseline_s)
