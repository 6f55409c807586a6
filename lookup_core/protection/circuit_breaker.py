"""Circuit breaker, after Nygard ("Release It!", 2007), with probes instead of trial queries.

The caller decides what counts as a failure: refused keys and cancelled queries do not.
"""

from collections import deque
from enum import IntEnum

from lookup_core.backoff import jittered
from lookup_core.errors import ErrorCode

_FAILURES_IN_A_ROW = 3
_WINDOW = 20  # results
_MIN_RESULTS = 10  # before their share counts
_FAILED_SHARE = 0.5
_FIRST_PROBE_S = 0.1
_MAX_PAUSE_S = 0.5  # a backend that recovers soon is found within a second
_LONG_OUTAGE_SHARE = 0.1  # by which its end may be found later
_MAX_LONG_PAUSE_S = 2.0  # a thousand sidecars then connect 700 times a second
_MAX_AUTH_PAUSE_S = 30.0  # servers lock out roles after many failed logins


class BreakerState(IntEnum):
    """The values are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2

    @property
    def label(self) -> str:
        """The lower-case word that JSON shows."""
        return self.name.lower()


class CircuitBreaker:
    """The breaker of one backend; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED  # half open while a probe is under way
        self.cause: ErrorCode | None = None  # the last failure; None while closed
        self._in_a_row = 0  # failures since the last success
        self._results: deque[bool] = deque(maxlen=_WINDOW)  # whether each was a success
        self._opened_at = 0.0
        self._probe_at = 0.0  # while open
        self._pause_s = _FIRST_PROBE_S

    def on_success(self) -> None:
        """The backend answered a query, which may have been sent before the breaker opened."""
        if self.state is not BreakerState.CLOSED:
            self._close()
        self._in_a_row = 0
        self._results.append(True)

    def on_failure(self, code: ErrorCode, now: float) -> None:
        """A query failed because of the backend."""
        if self.state is not BreakerState.CLOSED:
            return  # the query was sent before the breaker opened
        self._in_a_row += 1
        self._results.append(False)
        if self._in_a_row >= _FAILURES_IN_A_ROW or self._is_share_reached():
            self.state, self.cause = BreakerState.OPEN, code
            self._opened_at, self._pause_s = now, _FIRST_PROBE_S
            self._probe_at = now + self._next_pause_s(code, now)

    def probe_due_at(self) -> float | None:
        """When to probe; None while closed, or while a probe is under way."""
        return self._probe_at if self.state is BreakerState.OPEN else None

    def start_probe(self, now: float) -> None:
        """A probe is sent."""
        assert self.state is BreakerState.OPEN
        assert now >= self._probe_at
        self.state = BreakerState.HALF_OPEN

    def on_probe_success(self) -> None:
        """The backend is back; a no-op if the breaker is closed."""
        self._close()

    def on_probe_failure(self, code: ErrorCode, now: float, jitter: float) -> None:
        """The backend is still down; `jitter` in [0, 1) spreads the pause over its upper half."""
        if self.state is BreakerState.HALF_OPEN:
            self.state, self.cause = BreakerState.OPEN, code
            self._probe_at = now + jittered(self._next_pause_s(code, now), jitter)

    def check_invariants(self) -> None:
        """For tests."""
        assert len(self._results) <= _WINDOW
        is_closed = self.state is BreakerState.CLOSED
        assert not is_closed or self._in_a_row < _FAILURES_IN_A_ROW
        assert (self.probe_due_at() is not None) == (self.state is BreakerState.OPEN)
        assert (self.cause is None) == is_closed

    def _is_share_reached(self) -> bool:
        failed = self._results.count(False)
        return len(self._results) >= _MIN_RESULTS and failed >= _FAILED_SHARE * len(self._results)

    def _next_pause_s(self, code: ErrorCode, now: float) -> float:
        if code is ErrorCode.BACKEND_AUTH:
            most_s = _MAX_AUTH_PAUSE_S
        else:
            share_s = _LONG_OUTAGE_SHARE * (now - self._opened_at)
            most_s = min(max(_MAX_PAUSE_S, share_s), _MAX_LONG_PAUSE_S)
        pause_s = min(self._pause_s, most_s)
        self._pause_s = 2 * pause_s
        return pause_s

    def _close(self) -> None:
        self.state, self.cause = BreakerState.CLOSED, None
        self._in_a_row = 0
        self._results.clear()
