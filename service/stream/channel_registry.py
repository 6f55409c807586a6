"""Registry of open channels: limits, credit, and one watermark valve per dimension."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from lookup_core.event_time.watermark_valve import ValveOutput, ValveWatermark, WatermarkValve
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Open
from lookup_core.protocol.recent_streams import EndedStream, RecentStreams
from lookup_core.protocol.server_channel import ChannelStatistics, ServerChannel
from service.engine.dimension import Dimension

# A channel without a lookup for this time may lose its share to a new channel.
SILENT_S = 10.0
# The first watermark of a channel follows its first batch; without event time there is none. Until
# this wait ends the two cases look the same, and both hold the output watermark back.
FIRST_WATERMARK_S = 5.0


@dataclass(slots=True, eq=False)
class _Streams:
    """The channels of one dimension."""

    valve: WatermarkValve[ChannelId] = field(default_factory=WatermarkValve)
    open_count: int = 0
    watermark_ms: int | None = None  # kept when the valve is replaced

    def apply(self, outputs: Sequence[ValveOutput]) -> None:
        for output in outputs:
            if isinstance(output, ValveWatermark):
                self.watermark_ms = output.watermark_ms


@dataclass(slots=True, eq=False)
class _Channel:
    streams: _Streams
    is_in_valve: bool = True
    is_idle: bool = False
    has_ended: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class StreamWatermarks:
    """The watermark of each dimension, merged over its channels.

    A valve exists while its dimension has channels; see docs/decisions/006.
    """

    clock: Callable[[], float] = time.monotonic
    _streams: dict[str, _Streams] = field(default_factory=dict)  # {dimension: its channels}
    _channels: dict[ChannelId, _Channel] = field(default_factory=dict)
    # {channel without a watermark: when it leaves the valve}, oldest first
    _waiting: OrderedDict[ChannelId, float] = field(default_factory=OrderedDict)

    def opened(self, channel: ChannelId, dimension: str) -> None:
        """Add a channel; an id is never reused."""
        streams = self._streams.setdefault(dimension, _Streams())
        streams.open_count += 1
        streams.apply(streams.valve.add(channel))
        self._channels[channel] = _Channel(streams)
        self._waiting[channel] = self.clock() + FIRST_WATERMARK_S

    def on_watermark(self, channel: ChannelId, watermark_ms: int) -> None:
        """Take a watermark of a channel; the maximal one removes the channel from the valve."""
        self._expire_waiting()
        known = self._channels[channel]
        self._waiting.pop(channel, None)
        if known.has_ended:
            return
        if watermark_ms == MAX_WATERMARK_MS:
            known.has_ended = True
            self._leave_valve(channel)
            return
        streams = known.streams
        if not known.is_in_valve:
            known.is_in_valve = True
            streams.apply(streams.valve.add(channel))
            streams.apply(streams.valve.on_status(channel, is_idle=known.is_idle))
        streams.apply(streams.valve.on_watermark(channel, watermark_ms))

    def on_status(self, channel: ChannelId, *, is_idle: bool) -> None:
        """Mark a channel idle or active."""
        known = self._channels[channel]
        known.is_idle = is_idle
        if known.is_in_valve:
            known.streams.apply(known.streams.valve.on_status(channel, is_idle=is_idle))

    def dropped(self, channel: ChannelId) -> None:
        """Remove a channel; the last one of its dimension resets the valve."""
        if channel not in self._channels:
            return  # it was refused before it was opened
        self._expire_waiting()
        self._waiting.pop(channel, None)
        self._leave_valve(channel)
        streams = self._channels.pop(channel).streams
        streams.open_count -= 1
        if not streams.open_count:
            streams.valve = WatermarkValve()

    def watermarks_ms(self) -> dict[str, int]:
        """The event time that the streams of each dimension have reached, if any.

        It never decreases while a channel is open, and is kept while none is.
        """
        self._expire_waiting()
        known = {name: streams.watermark_ms for name, streams in self._streams.items()}
        return {name: mark for name, mark in known.items() if mark is not None}

    def check_invariants(self) -> None:
        """For tests: counts and valves match the open channels."""
        for streams in self._streams.values():
            streams.valve.check_invariants()
            own = [each for each in self._channels.values() if each.streams is streams]
            assert streams.open_count == len(own)
            assert streams.valve.statistics().channels == sum(each.is_in_valve for each in own)
        assert self._waiting.keys() <= self._channels.keys()

    def _expire_waiting(self) -> None:
        now_s = self.clock()
        while self._waiting and next(iter(self._waiting.values())) <= now_s:
            channel, _ = self._waiting.popitem(last=False)
            self._leave_valve(channel)

    def _leave_valve(self, channel: ChannelId) -> None:
        known = self._channels[channel]
        known.is_in_valve = False
        known.streams.apply(known.streams.valve.remove(channel))


@dataclass(frozen=True, slots=True)
class AdmittedChannel:
    """An open channel; `id` is unique in the process, the peer's number on its connection."""

    id: ChannelId
    connection: int
    state: ServerChannel[ChannelId]
    revoke: Callable[[], None]  # ends it, because a new channel needs its share


class ChannelRegistry:
    """Admits channels within the limits, and lists them."""

    def __init__(
        self, dimensions: Mapping[str, Dimension], *, max_channels: int, credit_bytes: int
    ) -> None:
        self.dimensions = dimensions
        self._credit: CreditLedger[ChannelId] = CreditLedger(
            credit_bytes, max_channels=max_channels
        )
        self.watermarks = StreamWatermarks()
        self._recent = RecentStreams()
        self._ids = count(1)  # 0 is the scheduler channel of HTTP lookups
        self._channels: dict[ChannelId, AdmittedChannel] = {}
        self._next_silent_at_s = 0.0  # no channel is silent for long before

    def admit(
        self, opened: Open, *, connection: int, revoke: Callable[[], None]
    ) -> AdmittedChannel:
        """Open a channel with its share of credit.

        If no share is left, it gets that of the channel that has been silent for longest, which is
        revoked. Raises Overloaded if none has been silent for `SILENT_S`, and while no memory is
        left for another channel.
        """
        if not self._credit.may_lend:
            detail = "memory is used up; raise limits.memory"
            raise Overloaded(ErrorCode.OVERLOADED, detail)
        channel = ChannelId(next(self._ids))
        if self._credit.open(channel) is None and not self._take_over(channel):
            raise Overloaded(ErrorCode.OVERLOADED, self._shortage())
        state = ServerChannel(
            opened.channel, opened.dimension, opened.origin, ledger=self._credit, owner=channel
        )
        state.used_at_s = self.watermarks.clock()
        admitted = self._channels[channel] = AdmittedChannel(channel, connection, state, revoke)
        self.watermarks.opened(channel, opened.dimension)
        self._recent.opened(opened.dimension, self.watermarks.clock())
        return admitted

    def remove(self, channel: ChannelId) -> None:
        """Return the credit of a channel; a no-op if the channel was removed before."""
        removed = self._channels.pop(channel, None)
        if removed is not None:
            state, now = removed.state, self.watermarks.clock()
            last = state.statistics(removed.connection)
            self._recent.closed(last, keys=state.keys_total, now=now)
        self._credit.close(channel)
        self.watermarks.dropped(channel)

    def allow_growth(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Set whether channels may be opened and get floating credit; open ones stay open."""
        self._credit.may_lend = is_allowed

    def statistics(self) -> list[ChannelStatistics]:
        """All channels, oldest first."""
        return [each.state.statistics(each.connection) for each in self._channels.values()]

    def ended_streams(self) -> list[EndedStream]:
        """The streams without an open channel that ended within the last minute."""
        watermarks = self.watermarks
        return self._recent.ended(watermarks.watermarks_ms(), watermarks.clock())

    def _shortage(self) -> str:
        if self._credit.is_full:
            limit, key = "which is the limit", "limits.channels"
        else:
            limit, key = "which use all memory for lookups", "limits.memory"
        return (
            f"{len(self._channels)} channels are open, {limit}, and none has been silent for"
            f" {SILENT_S:g} s; raise {key}"
        )

    def _take_over(self, channel: ChannelId) -> bool:
        """Open a channel with the share of a silent one; False without a silent channel."""
        now_s = self.watermarks.clock()
        if now_s < self._next_silent_at_s or not self._channels:
            return False
        longest = max(self._channels.values(), key=lambda each: each.state.silent_for_s(now_s))
        silent_for_s = longest.state.silent_for_s(now_s)
        if silent_for_s < SILENT_S:
            # Refused clients retry: do not visit all channels each time.
            self._next_silent_at_s = now_s + SILENT_S - silent_for_s
            return False
        longest.revoke()
        return self._credit.open(channel) is not None
