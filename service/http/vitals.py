"""How the process is doing: since when it runs, its memory, how late its timers are.

Asked for when somebody looks; nothing is measured here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Vitals:
    """Made when the service starts; `limit_bytes` is the configured bound of what lookups take."""

    limit_bytes: int = 0
    resident_bytes: Callable[[], int] = lambda: 0  # 0: not known
    lag_s: Callable[[], float] = lambda: 0.0
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(default_factory=time.monotonic)

    def told(self) -> dict[str, Any]:
        """The figures now, as JSON values; null for what is not known."""
        return {
            "uptime_s": self.clock() - self.started_at,
            "memory": {
                "resident_bytes": self.resident_bytes() or None,
                "limit_bytes": self.limit_bytes,
            },
            "event_loop_lag_s": self.lag_s(),
        }
