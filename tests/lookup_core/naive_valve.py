"""The valve as one would write it down: lists and scans, for the tests of the real one.

Not fast, and not careful with what it is told.
"""

from dataclasses import dataclass

from lookup_core.watermark_valve import (
    NO_WATERMARK_MS,
    ChannelTime,
    ValveOutput,
    ValveStatus,
    ValveWatermark,
)


@dataclass(slots=True)
class NaiveChannel:
    """One channel; whether it counts is noted when it changes, never worked out."""

    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False
    is_aligned: bool = False

    @property
    def time(self) -> ChannelTime:
        """As the real valve tells it."""
        return ChannelTime(self.watermark_ms, self.is_idle, self.is_aligned)


class NaiveValve:
    """Numbered channels; outputs as the real valve has them."""

    def __init__(self) -> None:
        self.channels: dict[int, NaiveChannel] = {}
        self.output_ms = NO_WATERMARK_MS
        self.is_idle = True

    def add(self, number: int) -> list[ValveOutput]:
        """A channel comes."""
        self.channels[number] = NaiveChannel(is_aligned=self.output_ms == NO_WATERMARK_MS)
        return self._wake()

    def remove(self, number: int) -> list[ValveOutput]:
        """A channel goes."""
        gone = self.channels.pop(number)
        return [] if gone.is_idle else self._fall_silent(may_advance=True)

    def watermark(self, number: int, watermark_ms: int) -> list[ValveOutput]:
        """A channel tells a watermark."""
        channel = self.channels[number]
        if channel.is_idle or watermark_ms <= channel.watermark_ms:
            return []
        channel.watermark_ms = watermark_ms
        if watermark_ms >= self.output_ms:
            channel.is_aligned = True
        return self._advance_to_least()

    def status(self, number: int, *, is_idle: bool) -> list[ValveOutput]:
        """A channel tells its status."""
        channel = self.channels[number]
        if channel.is_idle == is_idle:
            return []
        channel.is_idle = is_idle
        channel.is_aligned = not is_idle and channel.watermark_ms >= self.output_ms
        if not is_idle:
            return self._wake()
        return self._fall_silent(may_advance=channel.watermark_ms == self.output_ms)

    def _wake(self) -> list[ValveOutput]:
        was_idle, self.is_idle = self.is_idle, False
        return [ValveStatus(is_idle=False)] if was_idle else []

    def _fall_silent(self, *, may_advance: bool) -> list[ValveOutput]:
        self.is_idle = all(each.is_idle for each in self.channels.values())
        if not self.is_idle:
            return self._advance_to_least() if may_advance else []
        known = [each.watermark_ms for each in self.channels.values()]
        flushed = self._advance(max(known, default=self.output_ms)) if may_advance else []
        return [*flushed, ValveStatus(is_idle=True)]

    def _advance_to_least(self) -> list[ValveOutput]:
        counting = [each.watermark_ms for each in self.channels.values() if each.is_aligned]
        return self._advance(min(counting, default=self.output_ms))

    def _advance(self, watermark_ms: int) -> list[ValveOutput]:
        if watermark_ms <= self.output_ms:
            return []
        self.output_ms = watermark_ms
        return [ValveWatermark(watermark_ms)]
