"""Event loop monitoring: timer lag, and a watchdog that logs the stack of a blocked loop."""

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from service.observability.logs import frame_texts

INTERVAL_S = 0.25  # between heartbeats, and between checks
LATE_S = 2.0  # a later heartbeat means a blocked loop
LAG_WINDOW_S = 15.0

log = structlog.get_logger()


class Watchdog:
    """Watches the loop of the thread that creates it; `run` is its heartbeat, and measures it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched = threading.get_ident()
        self._last_beat_s = clock()
        self._is_reported = False  # the present blockage
        self._must_end = threading.Event()
        self._delays_s: deque[float] = deque(maxlen=round(LAG_WINDOW_S / INTERVAL_S))

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(INTERVAL_S)
            self.record(self._late_s)

    @property
    def lag_s(self) -> float:
        """The longest delay within the last `LAG_WINDOW_S`, in seconds; 0 before the first one."""
        return max(self._delays_s, default=0.0)

    def record(self, delay_s: float) -> None:
        """Record a delay of the heartbeat; the oldest one leaves a full window."""
        self._delays_s.append(max(0.0, delay_s))

    @property
    def _late_s(self) -> float:
        return self._clock() - self._last_beat_s - INTERVAL_S

    def beat(self) -> None:
        """Record that the loop runs."""
        self._last_beat_s = self._clock()
        self._is_reported = False

    def check(self) -> Sequence[str] | None:
        """The stack of the watched thread, outermost frame first, for a new blockage."""
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001  # the documented way
        if self._late_s < LATE_S or self._is_reported or frame is None:
            return None
        self._is_reported = True
        return frame_texts(traceback.extract_stack(frame))

    @contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        """Check from another thread until the block ends."""
        self.beat()
        watcher = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            self._must_end.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._must_end.wait(INTERVAL_S):
            frames = self.check()
            if frames is not None:
                log.error("event_loop.blocked", late_s=LATE_S, frames=frames)
