"""Watermark valve: merges the watermarks of many channels into their minimum.

After Flink's `StatusWatermarkValve`, for channels that come and go. A channel is any hashable
value.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

NO_WATERMARK_MS = -(2**63)  # before the first watermark
_SPARE_BOUNDS = 16  # heap entries of removed channels, beyond half of all, before a sweep

Channel = TypeVar("Channel", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ChannelTime:
    """The state of one channel."""

    watermark_ms: int  # or NO_WATERMARK_MS
    is_idle: bool
    is_aligned: bool  # it is part of the minimum


@dataclass(slots=True, eq=False)
class _Input:
    serial: int  # orders equal bounds in the heap
    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False
    has_bound: bool = False


class WatermarkValve(Generic[Channel]):
    """Puts out the minimum watermark of the aligned channels; it never decreases.

    A channel is aligned while it is active and its watermark is not behind the output. A channel
    that is added late, or resumes behind, has no effect until it catches up.
    """

    def __init__(self) -> None:
        self.watermark_ms = NO_WATERMARK_MS  # the last output
        self._inputs: dict[Channel, _Input] = {}
        self._active_count = 0
        self._serials = count()
        # A heap of (bound, serial, channel), at most one for each channel; all aligned channels
        # are in it. A bound is a former watermark of the channel. It is updated only at the top, so
        # that the watermark of another channel costs no sorting.
        self._bounds: list[tuple[int, int, _Input]] = []

    def __contains__(self, channel: Channel) -> bool:
        return channel in self._inputs

    @property
    def is_idle(self) -> bool:
        """Whether no channel is active, which includes no channels at all."""
        return not self._active_count

    def add(self, channel: Channel) -> None:
        """Add an active channel without a watermark; a no-op if it is present.

        Before the first output, it holds the output back until it has a watermark.
        """
        if channel not in self._inputs:
            added = self._inputs[channel] = _Input(next(self._serials))
            self._active_count += 1
            self._count_if_aligned(added)

    def remove(self, channel: Channel) -> None:
        """Remove a channel, which no longer holds the output back; a no-op if it is absent."""
        removed = self._inputs.pop(channel, None)
        if removed is None:
            return
        was_active = not removed.is_idle
        removed.is_idle = True  # its heap entry does not count
        # Its bound may be far ahead, and would stay until it is the least.
        if len(self._bounds) > 2 * len(self._inputs) + _SPARE_BOUNDS:
            for each in self._inputs.values():
                each.has_bound = self._is_aligned(each)
            counting = [each for each in self._inputs.values() if each.has_bound]
            self._bounds = [(each.watermark_ms, each.serial, each) for each in counting]
            heapify(self._bounds)
        if was_active:
            self._active_count -= 1
            self._advance()

    def on_watermark(self, channel: Channel, watermark_ms: int) -> None:
        """Advance a channel's watermark; ignored while it is idle. KeyError if it is absent."""
        known = self._inputs[channel]
        if not known.is_idle and watermark_ms > known.watermark_ms:
            known.watermark_ms = watermark_ms
            self._count_if_aligned(known)
            self._advance()

    def on_status(self, channel: Channel, *, is_idle: bool) -> None:
        """Set a channel idle or active; KeyError if it is absent.

        When the last active channel becomes idle while it holds the output, the largest watermark
        of all channels is put out. If a channel becomes active, the output advances with its next
        watermark.
        """
        known = self._inputs[channel]
        if known.is_idle == is_idle:
            return
        known.is_idle = is_idle
        if not is_idle:
            self._active_count += 1
            self._count_if_aligned(known)
            return
        self._active_count -= 1
        if known.watermark_ms == self.watermark_ms:
            self._advance()

    def time_of(self, channel: Channel) -> ChannelTime:
        """The state of a channel; KeyError if it is absent."""
        known = self._inputs[channel]
        return ChannelTime(known.watermark_ms, known.is_idle, self._is_aligned(known))

    def check_invariants(self) -> None:
        """For tests: each aligned channel is in the heap once, not above its watermark."""
        inputs = self._inputs.values()
        bounded = {id(channel) for _, _, channel in self._bounds}
        assert self._active_count == sum(not each.is_idle for each in inputs)
        assert len(bounded) == len(self._bounds) <= 2 * len(inputs) + _SPARE_BOUNDS
        assert all(bound_ms <= channel.watermark_ms for bound_ms, _, channel in self._bounds)
        for channel in inputs:
            assert channel.has_bound == (id(channel) in bounded)
            assert channel.has_bound or not self._is_aligned(channel)

    def _is_aligned(self, channel: _Input) -> bool:
        return not channel.is_idle and channel.watermark_ms >= self.watermark_ms

    def _count_if_aligned(self, channel: _Input) -> None:
        if not channel.has_bound and self._is_aligned(channel):
            channel.has_bound = True
            heappush(self._bounds, (channel.watermark_ms, channel.serial, channel))

    def _advance(self) -> None:
        found_ms = NO_WATERMARK_MS
        while self._bounds:
            bound_ms, serial, channel = self._bounds[0]
            if not self._is_aligned(channel):
                heappop(self._bounds)
                channel.has_bound = False
            elif bound_ms < channel.watermark_ms:
                heapreplace(self._bounds, (channel.watermark_ms, serial, channel))
            else:
                found_ms = bound_ms
                break
        if not self._active_count:
            found_ms = max((each.watermark_ms for each in self._inputs.values()), default=found_ms)
        self.watermark_ms = max(self.watermark_ms, found_ms)
