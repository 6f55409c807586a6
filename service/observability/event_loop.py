"""Event loop monitoring: lag, and a watchdog that logs the stack of a blocked loop."""

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

INTERVAL_S = 0.25  # of the heartbeat, and of the looks at it
LATE_S = 2.0  # so late, the loop counts as blocked

log = structlog.get_logger()


class Watchdog:
    """Watches the loop of the thread that makes it; `run` is its heartbeat."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched = threading.get_ident()
        self._last_beat_s = clock()
        self._is_told = False  # of the blockage at hand
        self._must_end = threading.Event()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(INTERVAL_S)

    def beat(self) -> None:
        """The loop runs."""
        self._last_beat_s = self._clock()
        self._is_told = False

    def look(self) -> Sequence[str] | None:
        """Where the watched thread stands, outermost first, if it is blocked and nobody knows."""
        late_s = self._clock() - self._last_beat_s - INTERVAL_S
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001  # the documented way
        if late_s < LATE_S or self._is_told or frame is None:
            return None
        self._is_told = True
        return frame_texts(traceback.extract_stack(frame))

    @contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        """Look from a thread until the block ends."""
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
            frames = self.look()
            if frames is not None:
                log.error("event_loop.blocked", late_s=LATE_S, frames=frames)


WINDOW_S = 15.0


class EventLoopLag:
    """The longest delay of a timer within the last `WINDOW_S`; of one loop, read from any task."""

    def __init__(self) -> None:
        self._delays_s: deque[float] = deque(maxlen=round(WINDOW_S / INTERVAL_S))

    @property
    def lag_s(self) -> float:
        """The longest recent delay in seconds; 0 before the first one is known."""
        return max(self._delays_s, default=0.0)

    def record(self, delay_s: float) -> None:
        """Note one delay; the oldest one leaves when the window is full."""
        self._delays_s.append(max(0.0, delay_s))

    async def run(self) -> None:
        """Measure until cancelled; cancellation leaves nothing behind."""
        loop = asyncio.get_running_loop()
        while True:
            expected_s = loop.time() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self.record(loop.time() - expected_s)
