"""What is to be given up when memory is short: caches first, then new credit, then requests.

Decides from shares only; who reads the memory and carries it out is `memory_guard`.
"""

from enum import IntEnum

SHRINK_FROM = 0.85  # of the memory there may be
_LEAVE = 0.03  # so much below a level's threshold it is left: at the threshold it would flutter
_SHRINK_STEP = 0.2  # of all caches' bounds, each time
_GROW_STEP = 0.1
_GROW_BELOW = 0.75  # of the memory in use


class PressureLevel(IntEnum):
    """What is given up; each includes those before."""

    NONE = 0
    SHRINK_CACHES = 1
    STOP_CREDIT = 2
    REFUSE = 3


_THRESHOLDS = {
    PressureLevel.SHRINK_CACHES: SHRINK_FROM,
    PressureLevel.STOP_CREDIT: 0.92,
    PressureLevel.REFUSE: 0.95,
}


class MemoryPressure:
    """Follows the share of memory that is in use, from one look to the next."""

    def __init__(self) -> None:
        self.level = PressureLevel.NONE
        self.cache_share = 1.0  # of their bounds that caches may hold

    def on_reading(self, used_share: float) -> PressureLevel:
        """The level now; caches shrink by a fifth at each look that finds it too high."""
        self.level = max(self._entered(used_share), self._not_left(used_share))
        if self.level is not PressureLevel.NONE:
            self.cache_share = max(0.0, round(self.cache_share - _SHRINK_STEP, 3))
        elif used_share < _GROW_BELOW:
            self.cache_share = min(1.0, round(self.cache_share + _GROW_STEP, 3))
        return self.level

    def _entered(self, used_share: float) -> PressureLevel:
        reached = [level for level, least in _THRESHOLDS.items() if used_share >= least]
        return max(reached, default=PressureLevel.NONE)

    def _not_left(self, used_share: float) -> PressureLevel:
        kept = [
            level
            for level, least in _THRESHOLDS.items()
            if level <= self.level and used_share >= least - _LEAVE
        ]
        return max(kept, default=PressureLevel.NONE)
