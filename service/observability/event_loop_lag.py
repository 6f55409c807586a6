"""How late the event loop runs its timers: what every lookup of the process waits in addition.

Only measures; it neither logs nor decides what is too much.
"""

import asyncio
from collections import deque

INTERVAL_S = 0.25
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
