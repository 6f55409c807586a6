"""Watermark of a dimension from those of its splits, and event-time alignment of splits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS, ChannelTime, WatermarkValve


@dataclass(slots=True)
class _Silence:
    since: float  # the last news (a change or a later watermark), or the last pause
    is_caught_up: bool = False


class SplitWatermarks:
    """The watermarks of splits; a caught-up split without news for `idle_after_s` is idle.

    `now` is monotonic seconds.
    """

    def __init__(self, idle_after_s: float) -> None:
        self._idle_after_s = idle_after_s
        self.valve: WatermarkValve[str] = WatermarkValve()
        self._silences: dict[str, _Silence] = {}  # {split id: silence}
        self._due_at = inf  # a lower bound of the time when a split becomes idle

    def add(self, split_id: str, now: float) -> None:
        """Add an active split; a no-op if it is present."""
        if split_id not in self._silences:
            self._silences[split_id] = _Silence(now)
            self.valve.add(split_id)

    def remove(self, split_id: str) -> None:
        """Remove a split; a no-op if it is absent."""
        self._silences.pop(split_id, None)
        self.valve.remove(split_id)

    def on_piece(
        self,
        split_id: str,
        *,
        watermark_ms: int,
        has_changes: bool,
        is_caught_up: bool,
        now: float,
    ) -> None:
        """A split was read, with changes or without."""
        silence = self._silences[split_id]
        is_news = has_changes or watermark_ms > self.valve.time_of(split_id).watermark_ms
        if is_news:
            silence.since = now
        silence.is_caught_up = is_caught_up
        if is_news or not is_caught_up:
            self.valve.on_status(split_id, is_idle=False)
            self.valve.on_watermark(split_id, watermark_ms)
        if is_caught_up and not self.valve.time_of(split_id).is_idle:
            self._due_at = min(self._due_at, silence.since + self._idle_after_s)

    def on_failure(self, split_id: str) -> None:
        """A split failed: it is not idle until it is read again."""
        self._silences[split_id].is_caught_up = False
        self.valve.on_status(split_id, is_idle=False)

    def expire(self, now: float, *, paused: Collection[str] = ()) -> None:
        """Make splits idle after `idle_after_s` without news; a pause does not count."""
        if now < self._due_at:
            return
        self._due_at = inf
        for split_id, silence in self._silences.items():
            if split_id in paused:
                silence.since = now
            if not silence.is_caught_up or self.valve.time_of(split_id).is_idle:
                continue
            due_at = silence.since + self._idle_after_s
            if due_at <= now:
                self.valve.on_status(split_id, is_idle=True)
            else:
                self._due_at = min(self._due_at, due_at)

    def next_deadline(self) -> float | None:
        """The time of the next call of `expire`."""
        return None if self._due_at == inf else self._due_at

    def active_ms(self) -> dict[str, int]:
        """The watermark of each active split."""
        times = {split_id: self.valve.time_of(split_id) for split_id in self._silences}
        return {each: time.watermark_ms for each, time in times.items() if not time.is_idle}

    def time_of(self, split_id: str) -> ChannelTime | None:
        """The state of a split; None if it is absent."""
        return self.valve.time_of(split_id) if split_id in self._silences else None

    def check_invariants(self) -> None:
        """For tests: every split that may become idle has a deadline."""
        self.valve.check_invariants()
        for split_id, silence in self._silences.items():
            if silence.is_caught_up and not self.valve.time_of(split_id).is_idle:
                assert self._due_at <= silence.since + self._idle_after_s


def splits_ahead(watermarks_ms: Mapping[str, int], max_drift_ms: int) -> frozenset[str]:
    """The splits whose watermark exceeds the minimum by more than the drift.

    A split without a watermark is not considered.
    """
    known_ms = {each: at_ms for each, at_ms in watermarks_ms.items() if at_ms != NO_WATERMARK_MS}
    if not known_ms:
        return frozenset()
    limit_ms = min(known_ms.values()) + max_drift_ms
    return frozenset(split_id for split_id, at_ms in known_ms.items() if at_ms > limit_ms)
