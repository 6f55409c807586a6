"""Memory guard: releases caches, credit and requests under memory pressure."""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import structlog

from service.resources.memory_reading import MemoryReading

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


log = structlog.get_logger()

_INTERVAL_S = 0.25
# Of the limit, and of all that is resident: so far from it, what allocators keep harms nobody.
_GIVE_BACK_FROM = 0.6
# Libraries grow by some megabytes with the first lookups, whatever the limit is.
_ALLOWANCE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Relief:
    """Who gives up what."""

    limit_caches: Callable[[float], None]  # the share of their bounds that they may hold
    allow_credit: Callable[[bool], None]
    allow_requests: Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What the last look has found, and what follows from it."""

    resident_bytes: int
    used_share: float  # of what there may be; the level is made of it
    level: PressureLevel


class MemoryGuard:
    """Keeps lookups, answers and caches within `limit_bytes`, and the process in its group's limit.

    `is_settled` tells when what the process has is what it needs to run; until then a reading is
    the base from which its growth is counted.
    """

    def __init__(
        self,
        read: Callable[[], MemoryReading],
        relief: Relief,
        *,
        limit_bytes: int,
        is_settled: Callable[[], bool],
    ) -> None:
        self._read = read
        self._relief = relief
        self._limit_bytes = limit_bytes
        self._is_settled = is_settled
        self._base_bytes: int | None = None
        self._pressure = MemoryPressure()
        self._seen = MemoryStatistics(0, 0.0, PressureLevel.NONE)

    async def run(self) -> None:
        """Look until cancelled; what cannot be read now stays as it was seen last."""
        is_known = True
        while True:
            try:
                self.look()
                is_known = True
            except OSError as error:  # no file descriptor is free: just then nobody may end for it
                if is_known:
                    log.warning("memory.unknown", code=error.strerror)
                is_known = False
            await asyncio.sleep(_INTERVAL_S)

    def look(self) -> PressureLevel:
        """Look once, and have given up what is too much; returns the level."""
        if self._base_bytes is None and self._is_settled():
            _give_back()  # what was only needed to read a table would be free room for ever
            self._base_bytes = self._read().resident_bytes
        if self._is_large():
            # What allocators keep and nobody needs is no reason to give anything up.
            _give_back()
        reading = self._read()
        used_share = self._used_share(reading)
        before, share_before = self._pressure.level, self._pressure.cache_share
        level = self._pressure.on_reading(used_share)
        if self._pressure.cache_share != share_before:
            self._relief.limit_caches(self._pressure.cache_share)
        if level is not before:
            self._change(level, used_share)
        self._seen = MemoryStatistics(reading.resident_bytes, used_share, level)
        return level

    def statistics(self) -> MemoryStatistics:
        """What was seen last; zeros before the first look."""
        return self._seen

    def _is_large(self) -> bool:
        reading = self._read()
        is_large = reading.resident_bytes >= _GIVE_BACK_FROM * self._limit_bytes
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
        self._relief.allow_credit(level < PressureLevel.STOP_CREDIT)
        self._relief.allow_requests(level < PressureLevel.REFUSE)


def _give_back() -> None:
    """Let allocators return to the kernel what they only keep in reserve."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # a C library without it keeps what it has
        ctypes.CDLL(None).malloc_trim(0)
