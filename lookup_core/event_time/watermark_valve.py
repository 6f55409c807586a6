"""Watermark valve: merges the watermarks of many channels into their minimum.

After Flink's `StatusWatermarkValve`, for channels that come and go. Outputs are returned, not
called back. A channel is any hashable value.
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
class ValveWatermark:
    """The merged watermark advanced."""

    watermark_ms: int


@dataclass(frozen=True, slots=True)
class ValveStatus:
    """All channels became idle, or one became active again."""

    is_idle: bool


ValveOutput = ValveWatermark | ValveStatus


@dataclass(frozen=True, slots=True)
class ChannelTime:
    """The state of one channel."""

    watermark_ms: int  # or NO_WATERMARK_MS
    is_idle: bool
    is_aligned: bool  # it is part of the minimum


@dataclass(frozen=True, slots=True)
class ValveStatistics:
    """Levels of a valve; `watermark_ms` is the last output, or NO_WATERMARK_MS."""

    watermark_ms: int
    is_idle: bool
    channels: int
    active_channels: int
    aligned_channels: int


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

    def add(self, channel: Channel) -> list[ValveOutput]:
        """Add an active channel without a watermark; a no-op if it is present.

        Before the first output, it holds the output back until it has a watermark.
        """
        if channel in self._inputs:
            return []
        added = self._inputs[channel] = _Input(next(self._serials))
        return self._activate(added)

    def remove(self, channel: Channel) -> list[ValveOutput]:
        """Remove a channel, which no longer holds the output back; a no-op if it is absent."""
        removed = self._inputs.pop(channel, None)
        if removed is None:
            return []
        was_active = not removed.is_idle
        removed.is_idle = True  # its heap entry does not count
        self._sweep()
        if not was_active:
            return []
        self._active_count -= 1
        return self._after_idle(may_advance=True)

    def on_watermark(self, channel: Channel, watermark_ms: int) -> list[ValveOutput]:
        """Advance a channel's watermark; ignored while it is idle. KeyError if it is absent."""
        known = self._inputs[channel]
        if known.is_idle or watermark_ms <= known.watermark_ms:
            return []
        known.watermark_ms = watermark_ms
        self._count_if_aligned(known)
        return self._put_out(self._least_ms())

    def on_status(self, channel: Channel, *, is_idle: bool) -> list[ValveOutput]:
        """Set a channel idle or active; KeyError if it is absent.

        When the last active channel becomes idle while it holds the output, the largest watermark
        of all channels is put out.
        """
        known = self._inputs[channel]
        if known.is_idle == is_idle:
            return []
        known.is_idle = is_idle
        if not is_idle:
            return self._activate(known)
        self._active_count -= 1
        return self._after_idle(may_advance=known.watermark_ms == self.watermark_ms)

    def time_of(self, channel: Channel) -> ChannelTime:
        """The state of a channel; KeyError if it is absent."""
        known = self._inputs[channel]
        return ChannelTime(known.watermark_ms, known.is_idle, self._is_aligned(known))

    def statistics(self) -> ValveStatistics:
        """Levels now."""
        return ValveStatistics(
            watermark_ms=self.watermark_ms,
            is_idle=self.is_idle,
            channels=len(self._inputs),
            active_channels=self._active_count,
            aligned_channels=sum(map(self._is_aligned, self._inputs.values())),
        )

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

    def _activate(self, channel: _Input) -> list[ValveOutput]:
        was_idle = self.is_idle
        self._active_count += 1
        self._count_if_aligned(channel)
        # The output advances with the next watermark of the channel.
        return [ValveStatus(is_idle=False)] if was_idle else []

    def _after_idle(self, *, may_advance: bool) -> list[ValveOutput]:
        outputs: list[ValveOutput] = []
        if may_advance:
            outputs = self._put_out(self._largest_ms() if self.is_idle else self._least_ms())
        return [*outputs, ValveStatus(is_idle=True)] if self.is_idle else outputs

    def _put_out(self, watermark_ms: int) -> list[ValveOutput]:
        if watermark_ms <= self.watermark_ms:
            return []
        self.watermark_ms = watermark_ms
        return [ValveWatermark(watermark_ms)]

    def _is_aligned(self, channel: _Input) -> bool:
        return not channel.is_idle and channel.watermark_ms >= self.watermark_ms

    def _count_if_aligned(self, channel: _Input) -> None:
        if not channel.has_bound and self._is_aligned(channel):
            channel.has_bound = True
            heappush(self._bounds, (channel.watermark_ms, channel.serial, channel))

    def _least_ms(self) -> int:
        while self._bounds:
            bound_ms, serial, channel = self._bounds[0]
            if not self._is_aligned(channel):
                heappop(self._bounds)
                channel.has_bound = False
            elif bound_ms < channel.watermark_ms:
                heapreplace(self._bounds, (channel.watermark_ms, serial, channel))
            else:
                return bound_ms
        return NO_WATERMARK_MS

    def _largest_ms(self) -> int:
        return max((each.watermark_ms for each in self._inputs.values()), default=NO_WATERMARK_MS)

    def _sweep(self) -> None:
        # The bound of a removed channel may be far ahead, and would stay until it is the least.
        if len(self._bounds) <= 2 * len(self._inputs) + _SPARE_BOUNDS:
            return
        for channel in self._inputs.values():
            channel.has_bound = self._is_aligned(channel)
        counting = [each for each in self._inputs.values() if each.has_bound]
        self._bounds = [(each.watermark_ms, each.serial, each) for each in counting]
        heapify(self._bounds)
