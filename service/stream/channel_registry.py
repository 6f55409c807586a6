"""Open channels of the process: limits, credit, and one watermark valve per dimension."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, Overloaded, unknown_dimension
from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Open
from lookup_core.protocol.server_channel import ChannelStatistics, ServerChannel
from lookup_core.watermark_valve import ValveOutput, ValveWatermark, WatermarkValve
from service.engine.dimension import Dimension

# A channel's first watermark follows its first batch. One without event time never has any: for so
# long the two cannot be told apart, and both hold the output back, as a slow first batch must.
FIRST_WATERMARK_S = 5.0


@dataclass(slots=True, eq=False)
class _Streams:
    """The channels of one dimension."""

    valve: WatermarkValve[ChannelId] = field(default_factory=WatermarkValve)
    open_count: int = 0
    watermark_ms: int | None = None  # kept when the valve starts anew

    def show(self, outputs: Sequence[ValveOutput]) -> None:
        for output in outputs:
            if isinstance(output, ValveWatermark):
                self.watermark_ms = output.watermark_ms


@dataclass(slots=True, eq=False)
class _Channel:
    streams: _Streams
    has_say: bool = True  # it is in the valve
    is_idle: bool = False
    has_ended: bool = False


class StreamWatermarks:
    """Told by the connections what their channels tell; nothing in it waits.

    A valve lives while its dimension has channels; see docs/decisions/006.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._streams: dict[str, _Streams] = {}  # {dimension: its channels}
        self._channels: dict[ChannelId, _Channel] = {}
        # {channel: until when it may hold the others back without a watermark}, oldest first
        self._unheard: OrderedDict[ChannelId, float] = OrderedDict()

    def opened(self, channel: ChannelId, dimension: str) -> None:
        """A channel stands; no number comes twice."""
        streams = self._streams.setdefault(dimension, _Streams())
        streams.open_count += 1
        streams.show(streams.valve.add(channel))
        self._channels[channel] = _Channel(streams)
        self._unheard[channel] = self._clock() + FIRST_WATERMARK_S

    def on_watermark(self, channel: ChannelId, watermark_ms: int) -> None:
        """A watermark of a channel; the maximal one ends its say."""
        self._pass_over()
        heard = self._channels[channel]
        self._unheard.pop(channel, None)
        if heard.has_ended:
            return
        if watermark_ms == MAX_WATERMARK_MS:
            heard.has_ended = True
            self._end_say(channel)
            return
        if not heard.has_say:
            self._begin_say(channel)
        heard.streams.show(heard.streams.valve.on_watermark(channel, watermark_ms))

    def on_status(self, channel: ChannelId, *, is_idle: bool) -> None:
        """A channel has nothing to say for now, or has again."""
        heard = self._channels[channel]
        heard.is_idle = is_idle
        if heard.has_say:
            heard.streams.show(heard.streams.valve.on_status(channel, is_idle=is_idle))

    def dropped(self, channel: ChannelId) -> None:
        """A channel has gone; with the last one of its dimension the valve starts anew."""
        if channel not in self._channels:
            return  # it was refused before it stood
        self._pass_over()
        self._unheard.pop(channel, None)
        self._end_say(channel)
        streams = self._channels.pop(channel).streams
        streams.open_count -= 1
        if not streams.open_count:
            streams.valve = WatermarkValve()

    def watermarks_ms(self) -> dict[str, int]:
        """The event time that each dimension's streams have reached, where there is one.

        Never goes back while a channel is open; stays when none is.
        """
        self._pass_over()
        known = {name: streams.watermark_ms for name, streams in self._streams.items()}
        return {name: mark for name, mark in known.items() if mark is not None}

    def check_invariants(self) -> None:
        """For tests: the valves hold those who have a say, and nobody that has gone."""
        for streams in self._streams.values():
            streams.valve.check_invariants()
            own = [each for each in self._channels.values() if each.streams is streams]
            assert streams.open_count == len(own)
            assert streams.valve.statistics().channels == sum(each.has_say for each in own)
        assert self._unheard.keys() <= self._channels.keys()

    def _pass_over(self) -> None:
        now_s = self._clock()
        while self._unheard and next(iter(self._unheard.values())) <= now_s:
            channel, _ = self._unheard.popitem(last=False)
            self._end_say(channel)

    def _begin_say(self, channel: ChannelId) -> None:
        heard = self._channels[channel]
        heard.has_say = True
        heard.streams.show(heard.streams.valve.add(channel))
        heard.streams.show(heard.streams.valve.on_status(channel, is_idle=heard.is_idle))

    def _end_say(self, channel: ChannelId) -> None:
        heard = self._channels[channel]
        heard.has_say = False
        heard.streams.show(heard.streams.valve.remove(channel))


_RETRY_AFTER_S = 1.0


class ChannelRegistry:
    """Admits channels within the limits and lists them."""

    def __init__(
        self, dimensions: Mapping[str, Dimension], *, max_channels: int, credit_bytes: int
    ) -> None:
        self._dimensions = dimensions
        self._credit: CreditLedger[ChannelId] = CreditLedger(
            credit_bytes, max_channels=max_channels
        )
        self.watermarks = StreamWatermarks()
        self._ids = count(1)  # 0 is the turn of plain requests
        self._channels: dict[
            ChannelId, tuple[int, ServerChannel[ChannelId]]
        ] = {}  # {turn: (connection, book)}

    def dimension(self, name: str) -> Dimension:
        """A dimension by name; raises InvalidRequest that lists those there are."""
        dimension = self._dimensions.get(name)
        if dimension is None:
            raise unknown_dimension(name, self._dimensions)
        return dimension

    def admit(self, opened: Open, *, connection: int) -> tuple[ChannelId, ServerChannel[ChannelId]]:
        """The turn and the book of a new channel.

        Raises Overloaded when there are too many, or no memory for another one.
        """
        if not self._credit.may_lend:
            raise _overloaded("memory is used up; raise limits.memory")
        turn = ChannelId(next(self._ids))
        if self._credit.open(turn) is None:
            raise _overloaded(
                f"{len(self._channels)} channels are open, and have all memory for lookups; raise"
                " limits.memory, or limits.channels if there are as many"
            )
        book = ServerChannel(
            opened.channel, opened.dimension, opened.origin, ledger=self._credit, owner=turn
        )
        self._channels[turn] = (connection, book)
        self.watermarks.opened(turn, opened.dimension)
        return turn, book

    def remove(self, turn: ChannelId) -> None:
        """Take an admitted channel's credit back; harmless when it is gone."""
        self._credit.close(turn)
        self._channels.pop(turn, None)
        self.watermarks.dropped(turn)

    def allow_growth(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Whether channels may open, and get floating credit; those open go on with their own."""
        self._credit.may_lend = is_allowed

    def statistics(self) -> list[ChannelStatistics]:
        """All channels, oldest first."""
        return [book.statistics(connection) for connection, book in self._channels.values()]


def _overloaded(detail: str) -> Overloaded:
    return Overloaded(ErrorCode.OVERLOADED, detail, retry_after_s=_RETRY_AFTER_S)
