"""Watermark of a dimension from those of its splits, and event-time alignment of splits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from lookup_core.watermark_valve import NO_WATERMARK_MS, ChannelTime, WatermarkValve


@dataclass(slots=True)
class _Silence:
    since: float  # the last change or watermark, or the end of a pause
    is_caught_up: bool = False


class SplitWatermarks:
    """Takes a split for idle that is caught up and has had no news for `idle_after_s`.

    Times are seconds of a monotonic clock, but for the watermarks.
    """

    def __init__(self, idle_after_s: float) -> None:
        self._idle_after_s = idle_after_s
        self._valve: WatermarkValve[str] = WatermarkValve()
        self._silences: dict[str, _Silence] = {}  # {split id: its silence}, as in the valve
        self._due_at = inf  # nobody falls idle before; perhaps nobody does then either

    @property
    def watermark_ms(self) -> int:
        """The least of the active splits that are not behind; NO_WATERMARK_MS: none yet."""
        return self._valve.watermark_ms

    @property
    def is_idle(self) -> bool:
        """Whether no split is active."""
        return self._valve.is_idle

    def add(self, split_id: str, now: float) -> None:
        """A split comes, active; harmless when it is there."""
        if split_id not in self._silences:
            self._silences[split_id] = _Silence(now)
            self._valve.add(split_id)

    def remove(self, split_id: str) -> None:
        """A split goes for good; harmless when it is not there."""
        self._silences.pop(split_id, None)
        self._valve.remove(split_id)

    def on_piece(
        self,
        split_id: str,
        *,
        watermark_ms: int,
        has_changes: bool,
        is_caught_up: bool,
        now: float,
    ) -> None:
        """A split has told something, if only that nothing was there."""
        silence = self._silences[split_id]
        is_news = has_changes or watermark_ms > self._valve.time_of(split_id).watermark_ms
        if is_news:
            silence.since = now
        silence.is_caught_up = is_caught_up
        if is_news or not is_caught_up:
            self._valve.on_status(split_id, is_idle=False)
            self._valve.on_watermark(split_id, watermark_ms)
        if is_caught_up and not self._valve.time_of(split_id).is_idle:
            self._due_at = min(self._due_at, silence.since + self._idle_after_s)

    def on_failure(self, split_id: str) -> None:
        """A split cannot be read for now: nobody knows whether it is silent."""
        self._silences[split_id].is_caught_up = False
        self._valve.on_status(split_id, is_idle=False)

    def expire(self, now: float, *, paused: Collection[str] = ()) -> None:
        """Let those fall idle that have been silent for too long; who is paused is not silent."""
        if now < self._due_at:
            return
        self._due_at = inf
        for split_id, silence in self._silences.items():
            if split_id in paused:
                silence.since = now
            if not silence.is_caught_up or self._valve.time_of(split_id).is_idle:
                continue
            due_at = silence.since + self._idle_after_s
            if due_at <= now:
                self._valve.on_status(split_id, is_idle=True)
            else:
                self._due_at = min(self._due_at, due_at)

    def next_deadline(self) -> float | None:
        """When to call `expire` again, at the latest."""
        return None if self._due_at == inf else self._due_at

    def active_ms(self) -> dict[str, int]:
        """The watermarks of the active splits, by id."""
        times = {split_id: self._valve.time_of(split_id) for split_id in self._silences}
        return {each: time.watermark_ms for each, time in times.items() if not time.is_idle}

    def time_of(self, split_id: str) -> ChannelTime | None:
        """What is known of a split; None if it is not there."""
        return self._valve.time_of(split_id) if split_id in self._silences else None

    def check_invariants(self) -> None:
        """For tests: who may fall idle does not without a deadline."""
        self._valve.check_invariants()
        for split_id, silence in self._silences.items():
            if silence.is_caught_up and not self._valve.time_of(split_id).is_idle:
                assert self._due_at <= silence.since + self._idle_after_s


def splits_ahead(watermarks_ms: Mapping[str, int], max_drift_ms: int) -> frozenset[str]:
    """The active splits whose watermark is more than the drift beyond the least of them.

    Never the slowest, so that nothing stalls. A split that has told no watermark yet neither waits
    nor is waited for.
    """
    told_ms = {each: at_ms for each, at_ms in watermarks_ms.items() if at_ms != NO_WATERMARK_MS}
    if not told_ms:
        return frozenset()
    limit_ms = min(told_ms.values()) + max_drift_ms
    return frozenset(split_id for split_id, at_ms in told_ms.items() if at_ms > limit_ms)
