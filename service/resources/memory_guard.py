"""Memory guard: under memory pressure shrinks caches, stops credit, then refuses requests."""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import structlog

from lookup_core.statistics import MemoryStatistics
from service.resources.memory_reading import MemoryReading

log = structlog.get_logger()

SHRINK_FROM = 0.85  # share of the limit
_HYSTERESIS = 0.03  # a level ends this far below its threshold
_SHRINK_STEP = 0.2  # share of the caches' bounds, per reading
_GROW_STEP = 0.1
_GROW_BELOW = 0.75  # share of the limit
_INTERVAL_S = 0.25
_RELEASE_FROM = 0.6  # share of the limit; below it, unused memory of allocators does no harm
_ALLOWANCE_BYTES = 16 * 1024 * 1024  # libraries grow by this with the first lookups


class PressureLevel(IntEnum):
    """The measures against pressure; each level includes the lower ones."""

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
    """The pressure level and the caches' share, from successive readings."""

    def __init__(self) -> None:
        self.level = PressureLevel.NONE
        self.cache_share = 1.0  # share of the configured bounds

    def on_reading(self, used_share: float) -> PressureLevel:
        """The new level; under pressure each reading shrinks the caches by a fifth."""
        reached = (
            level
            for level, threshold in _THRESHOLDS.items()
            if used_share >= threshold - (_HYSTERESIS if level <= self.level else 0.0)
        )
        self.level = max(reached, default=PressureLevel.NONE)
        if self.level is not PressureLevel.NONE:
            self.cache_share = max(0.0, round(self.cache_share - _SHRINK_STEP, 3))
        elif used_share < _GROW_BELOW:
            self.cache_share = min(1.0, round(self.cache_share + _GROW_STEP, 3))
        return self.level


@dataclass(frozen=True, slots=True)
class PressureMeasures:
    """The callbacks that release memory."""

    limit_caches: Callable[[float], None]  # the allowed share of their bounds
    allow_credit: Callable[[bool], None]
    allow_requests: Callable[[bool], None]


class MemoryGuard:
    """Keeps lookups, answers and caches within `limit_bytes`, and the process within its cgroup.

    Growth counts from the first reading at which `is_settled` is true: by then the process has what
    it needs to run. Before, only the limit of the control group counts.
    """

    def __init__(
        self,
        read: Callable[[], MemoryReading],
        measures: PressureMeasures,
        *,
        limit_bytes: int,
        is_settled: Callable[[], bool],
    ) -> None:
        self._read = read
        self._measures = measures
        self._limit_bytes = limit_bytes
        self._is_settled = is_settled
        self._base_bytes: int | None = None
        self._pressure = MemoryPressure()
        self._last = MemoryStatistics(0, 0.0, PressureLevel.NONE)

    async def run(self) -> None:
        """Check until cancelled; an unreadable value leaves the last reading in effect."""
        is_known = True
        while True:
            try:
                self.check()
                is_known = True
            except OSError as error:  # without free file descriptors the service must continue
                if is_known:
                    log.warning("memory.unknown", code=error.strerror)
                is_known = False
            await asyncio.sleep(_INTERVAL_S)

    def check(self) -> PressureLevel:
        """Read the memory, apply the measures and return the level; raises OSError."""
        if self._base_bytes is None and self._is_settled():
            _release_unused()  # else the memory of a load would count as free for ever
            self._base_bytes = self._read().resident_bytes
        if self._pressure.level is PressureLevel.REFUSE:
            gc.collect()  # a process that refuses allocates too little for an automatic one
        reading = self._read()
        if self._is_large(reading):
            _release_unused()  # unused memory of allocators is no reason for measures
            reading = self._read()
        used_share = self._used_share(reading)
        before, share_before = self._pressure.level, self._pressure.cache_share
        level = self._pressure.on_reading(used_share)
        if self._pressure.cache_share != share_before:
            self._measures.limit_caches(self._pressure.cache_share)
        if level is not before:
            self._change(level, used_share)
        self._last = MemoryStatistics(reading.resident_bytes, used_share, level)
        return level

    def statistics(self) -> MemoryStatistics:
        """The last reading; zeros before the first one."""
        return self._last

    def _is_large(self, reading: MemoryReading) -> bool:
        is_large = reading.resident_bytes >= _RELEASE_FROM * self._limit_bytes
        return is_large or self._used_share(reading) >= SHRINK_FROM

    def _used_share(self, reading: MemoryReading) -> float:
        used_share = 0.0
        if self._base_bytes is not None:
            grown_bytes = reading.resident_bytes - self._base_bytes - _ALLOWANCE_BYTES
            used_share = grown_bytes / self._limit_bytes
        if reading.group_limit_bytes:
            used_share = max(used_share, reading.group_bytes / reading.group_limit_bytes)
        return used_share

    def _change(self, level: PressureLevel, used_share: float) -> None:
        log.warning(
            "memory.pressure",
            code=level.name.lower(),
            used_share=round(used_share, 2),
            cache_share=self._pressure.cache_share,
        )
        self._measures.allow_credit(level < PressureLevel.STOP_CREDIT)
        self._measures.allow_requests(level < PressureLevel.REFUSE)


def _release_unused() -> None:
    """Return unused memory of the allocators to the kernel."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # not in every C library
        ctypes.CDLL(None).malloc_trim(0)
