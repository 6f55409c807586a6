"""Merges the watermarks of many channels into one: the least of those that count.

After Flink's `StatusWatermarkValve`, with channels that come and go. Outputs are returned, not
called back. Makes no watermarks and knows no end of input: a channel may be anything hashable.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

NO_WATERMARK_MS = -(2**63)  # below every watermark: there was none yet
_SPARE_BOUNDS = 16  # of channels that have gone; more than that and half of all are swept out

Channel = TypeVar("Channel", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ValveWatermark:
    """The merged watermark has advanced to this."""

    watermark_ms: int


@dataclass(frozen=True, slots=True)
class ValveStatus:
    """No channel has anything to say for now, or one has again."""

    is_idle: bool


ValveOutput = ValveWatermark | ValveStatus


@dataclass(frozen=True, slots=True)
class ChannelTime:
    """What the valve knows of one channel."""

    watermark_ms: int  # NO_WATERMARK_MS: none yet
    is_idle: bool
    is_aligned: bool  # it counts


@dataclass(frozen=True, slots=True)
class ValveStatistics:
    """A snapshot; `watermark_ms` is the last output, NO_WATERMARK_MS before the first."""

    watermark_ms: int
    is_idle: bool
    channels: int
    active_channels: int
    aligned_channels: int


@dataclass(slots=True, eq=False)
class _Input:
    serial: int  # parts equal bounds in the heap, in the order of coming
    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False
    has_bound: bool = False


class WatermarkValve(Generic[Channel]):
    """Puts out the least watermark over the active channels that are not behind; never goes back.

    A channel counts (is aligned) while it is active and its watermark is not behind the output: who
    comes late or resumes behind neither holds the output back nor moves it before it caught up.
    """

    def __init__(self) -> None:
        self._inputs: dict[Channel, _Input] = {}
        self._active_count = 0
        self._watermark_ms = NO_WATERMARK_MS
        self._serials = count()
        # A heap of (bound, serial, channel): at most one each, for all that count and for some that
        # do not any more. A bound is a watermark that the channel once had; it is made true only
        # when it comes up, so that a watermark of one that holds nobody back costs no sorting.
        self._bounds: list[tuple[int, int, _Input]] = []

    @property
    def watermark_ms(self) -> int:
        """The last output; NO_WATERMARK_MS before the first."""
        return self._watermark_ms

    @property
    def is_idle(self) -> bool:
        """Whether no channel is active; also without any channel."""
        return not self._active_count

    def add(self, channel: Channel) -> list[ValveOutput]:
        """A channel comes, active and without a watermark; harmless when it is there.

        Before the first output it holds everything back until it has a watermark.
        """
        if channel in self._inputs:
            return []
        came = self._inputs[channel] = _Input(next(self._serials))
        return self._activate(came)

    def remove(self, channel: Channel) -> list[ValveOutput]:
        """A channel goes for good; whom it held back goes on. Harmless when it is not there."""
        gone = self._inputs.pop(channel, None)
        if gone is None:
            return []
        was_active = not gone.is_idle
        gone.is_idle = True  # what is left of it in the heap does not count
        self._sweep()
        if not was_active:
            return []
        self._active_count -= 1
        return self._after_silence(may_advance=True)

    def on_watermark(self, channel: Channel, watermark_ms: int) -> list[ValveOutput]:
        """A channel's watermark; ignored from an idle one, and when it does not advance.

        Raises KeyError for a channel that is not there.
        """
        heard = self._inputs[channel]
        if heard.is_idle or watermark_ms <= heard.watermark_ms:
            return []
        heard.watermark_ms = watermark_ms
        self._count_if_aligned(heard)
        return self._put_out(self._least_ms())

    def on_status(self, channel: Channel, *, is_idle: bool) -> list[ValveOutput]:
        """A channel falls idle, or resumes; nothing when it does not change.

        When the last one falls idle that held the output, the largest watermark of all is put out.
        Raises KeyError for a channel that is not there.
        """
        heard = self._inputs[channel]
        if heard.is_idle == is_idle:
            return []
        heard.is_idle = is_idle
        if not is_idle:
            return self._activate(heard)
        self._active_count -= 1
        return self._after_silence(may_advance=heard.watermark_ms == self._watermark_ms)

    def time_of(self, channel: Channel) -> ChannelTime:
        """What is known of a channel; raises KeyError if it is not there."""
        known = self._inputs[channel]
        return ChannelTime(known.watermark_ms, known.is_idle, self._is_aligned(known))

    def statistics(self) -> ValveStatistics:
        """A snapshot."""
        return ValveStatistics(
            watermark_ms=self._watermark_ms,
            is_idle=self.is_idle,
            channels=len(self._inputs),
            active_channels=self._active_count,
            aligned_channels=sum(map(self._is_aligned, self._inputs.values())),
        )

    def check_invariants(self) -> None:
        """For tests: who counts stands in the heap, once, with a bound that is not above it."""
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
        # No watermark, even if one could be put out now: one follows from the channel itself.
        return [ValveStatus(is_idle=False)] if was_idle else []

    def _after_silence(self, *, may_advance: bool) -> list[ValveOutput]:
        if self._active_count:
            return self._put_out(self._least_ms()) if may_advance else []
        flushed = self._put_out(self._largest_ms()) if may_advance else []
        return [*flushed, ValveStatus(is_idle=True)]

    def _put_out(self, watermark_ms: int) -> list[ValveOutput]:
        if watermark_ms <= self._watermark_ms:
            return []
        self._watermark_ms = watermark_ms
        return [ValveWatermark(watermark_ms)]

    def _is_aligned(self, channel: _Input) -> bool:
        return not channel.is_idle and channel.watermark_ms >= self._watermark_ms

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
        # A channel that has gone while far ahead would otherwise stay until its bound comes up.
        if len(self._bounds) <= 2 * len(self._inputs) + _SPARE_BOUNDS:
            return
        for channel in self._inputs.values():
            channel.has_bound = self._is_aligned(channel)
        counting = [each for each in self._inputs.values() if each.has_bound]
        self._bounds = [(each.watermark_ms, each.serial, each) for each in counting]
        heapify(self._bounds)
