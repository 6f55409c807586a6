"""Keeps one fault that repeats from filling the log, and says how often it was held back.

A structlog processor; it looks at the event's code only, never at what the event is about.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from structlog import DropEvent
from structlog.typing import EventDict, WrappedLogger

WINDOW_S = 1.0
MAX_SUBJECTS = 1024  # beyond, the one seen longest ago is forgotten


@dataclass(slots=True)
class _Window:
    start_s: float
    logged: int = 0
    suppressed: int = 0


class LogRateLimit:
    """At most `per_second` events of the same name, code and peer; from any thread."""

    def __init__(self, per_second: int = 5, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._lock = threading.Lock()  # nothing in it waits: whoever logs never waits for long
        self._windows: dict[tuple[object, ...], _Window] = {}  # {subject: window, oldest first}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """The event, with `suppressed` if some before it were dropped; raises DropEvent."""
        subject = tuple(str(event.get(field)) for field in ("event", "code", "peer"))
        with self._lock:
            suppressed = self._admitted(subject)
        return {**event, "suppressed": suppressed} if suppressed else event

    def _admitted(self, subject: tuple[object, ...]) -> int:
        window = self._windows.pop(subject, None) or _Window(self._clock())
        self._windows[subject] = window
        self._forget_oldest()
        suppressed = self._turn(window)
        if window.logged >= self._per_second:
            window.suppressed += 1
            raise DropEvent
        window.logged += 1
        return suppressed

    def _turn(self, window: _Window) -> int:
        now_s = self._clock()
        if now_s - window.start_s < WINDOW_S:
            return 0
        suppressed = window.suppressed
        window.start_s, window.logged, window.suppressed = now_s, 0, 0
        return suppressed

    def _forget_oldest(self) -> None:
        if len(self._windows) > MAX_SUBJECTS:
            del self._windows[next(iter(self._windows))]
