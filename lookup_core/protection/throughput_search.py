"""Hill climbing on throughput: the number of concurrent queries with most keys per second.

Counts and decides, and knows nothing of failures; `now` is monotonic seconds.
"""

_LEAST = 2  # so that one slow query does not hold back all others
_QUERIES_PER_SLOT = 6  # in a measurement
_LEAST_S = 0.1
_MARGIN = 0.03  # by which a rate must differ; among equal rates, fewer queries are better
_MOST_PAUSE = 32  # measurements between two trials


class ThroughputSearch:
    """A limit between 2 and `most`, where it begins; 1 if `most` is 1.

    On a server with few processors, more queries at once are slower together; on a distant or large
    one, fewer are. A neighbour of the present limit is tried and kept if it is better. After each
    failed trial the next one waits for longer. Only times in which all slots are in use count.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = most
        self._home = most  # the best limit so far
        self._best_rate = 0.0  # keys per second, at home
        self._direction = -1
        self._pause = self._left = 1  # measurements at home until the next trial
        self._since: float | None = None  # when the measurement began
        self._valid_from = float("-inf")  # queries that were sent before had another limit
        self._keys = self._queries = 0

    def on_success(self, keys: int, *, sent_at: float, now: float, in_flight: int) -> None:
        """A query answered this many keys; `in_flight` were at the backend when it was sent."""
        if sent_at < self._valid_from:
            return
        if in_flight < self.limit:  # the demand limits the rate
            self._since = None
        elif self._since is None:
            self._since, self._keys, self._queries = now, 0, 0
        else:
            self._keys += keys
            self._queries += 1
            seconds = now - self._since
            if self._queries >= _QUERIES_PER_SLOT * self.limit and seconds >= _LEAST_S:
                self._on_rate(self._keys / seconds)
                self._since, self._valid_from = None, now

    def check_invariants(self) -> None:
        """For tests."""
        assert min(_LEAST, self._most) <= self.limit <= self._most
        assert 1 <= self._left <= self._pause <= _MOST_PAUSE

    def _on_rate(self, rate: float) -> None:
        if self.limit == self._home:
            self._best_rate = rate
            self._left -= 1
            if not self._left:
                self._try_neighbour()
            return
        margin = _MARGIN if self.limit > self._home else -_MARGIN
        if rate > self._best_rate * (1 + margin):
            # The larger rate, so that several small losses do not add up.
            self._home, self._best_rate = self.limit, max(rate, self._best_rate)
            self._pause = 1
            self._try_neighbour()
        else:
            self._direction = -self._direction
            self._pause = min(2 * self._pause, _MOST_PAUSE)
            self.limit, self._left = self._home, self._pause

    def _try_neighbour(self) -> None:
        self._left = self._pause
        step = max(1, self._home // 4)
        for direction in (self._direction, -self._direction):
            limit = min(max(self._home + direction * step, _LEAST), self._most)
            if limit != self._home:
                self.limit, self._direction = limit, direction
                return
