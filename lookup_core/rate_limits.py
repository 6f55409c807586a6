"""Rate limits: a token bucket, a pace, and a limit for repeated log events; not thread-safe."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

MAX_SUBJECTS = 1024  # beyond, the least recently seen subject is dropped
_BURSTS_PER_S = 10


class TokenBucket:
    """At most `most` tokens, full at the start; `now` is monotonic seconds."""

    def __init__(self, most: float, *, per_second: float) -> None:
        self._most = self._left = most
        self._per_second = per_second
        self._counted_at: float | None = None

    def take_token(self, now: float) -> bool:
        """Spend a token; False, at no cost, without a whole one."""
        self.add_tokens(0.0, now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def add_tokens(self, tokens: float, now: float) -> None:
        """Add tokens, besides those of the time since the last call."""
        seconds = 0.0 if self._counted_at is None else now - self._counted_at
        self._left = min(self._most, self._left + seconds * self._per_second + tokens)
        self._counted_at = now

    def check_invariants(self) -> None:
        """For tests."""
        assert 0 <= self._left <= self._most


class Pace:
    """At most `per_second` events in any second, in bursts of a tenth of that; None: no limit.

    `now` is monotonic seconds. The caller waits until `next_at`.
    """

    def __init__(self, per_second: int | None) -> None:
        burst = 1 if per_second is None else max(1, per_second // _BURSTS_PER_S)
        # A whole number of intervals makes a second, so that none has more events; a microsecond
        # exceeds all rounding of times.
        self._interval_s = 0.0 if per_second is None else 1 / (per_second // burst) + 1e-6
        self._latest: deque[float] = deque(maxlen=burst)  # events

    def next_at(self, at: float) -> float:
        """The earliest time, not before `at`, of the next event."""
        if len(self._latest) < (self._latest.maxlen or 0):
            return at
        return max(at, self._latest[0] + self._interval_s)

    def on_event(self, now: float) -> None:
        """An event happens, not before its time."""
        self._latest.append(now)


@dataclass(slots=True)
class _Window:
    start_s: float
    admitted: int = 0
    suppressed: int = 0


class EventRateLimit:
    """At most `max_events` of each subject in a window; the first event opens the window."""

    def __init__(self, max_events: int = 1, *, window_s: float = 30.0) -> None:
        self._max_events = max_events
        self._window_s = window_s
        self._windows: dict[Hashable, _Window] = {}  # {subject: window}, least recently seen first

    def admit(self, subject: Hashable, now: float) -> int | None:
        """The number of events suppressed in the previous window; None to suppress this one."""
        window = self._windows.pop(subject, None) or _Window(now)
        self._windows[subject] = window
        if len(self._windows) > MAX_SUBJECTS:
            del self._windows[next(iter(self._windows))]
        suppressed = 0
        if now - window.start_s >= self._window_s:
            suppressed = window.suppressed
            window.start_s, window.admitted, window.suppressed = now, 0, 0
        if window.admitted >= self._max_events:
            window.suppressed += 1
            return None
        window.admitted += 1
        return suppressed

    def is_due(self, subject: Hashable, now: float) -> bool:
        """Whether to write an event of this subject now; if so, it counts as written."""
        return self.admit(subject, now) is not None

    def on_success(self) -> None:
        """Drop all subjects: the next event of each is written."""
        self._windows.clear()
