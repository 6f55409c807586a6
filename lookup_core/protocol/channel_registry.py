"""Registry of the open channels of all connections: what they share, by process and dimension."""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from math import inf

from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS, WatermarkValve
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.lookup_turns import LookupTurns
from lookup_core.protocol.server_channel import (
    ChannelSchema,
    ChannelStatistics,
    ServerChannel,
)
from lookup_core.record_costs import FIRST_GUESS_BYTES, AnswerSize, RecordCosts

# A channel without a lookup for this time may lose its share to a new channel.
SILENT_S = 10.0
# The first watermark of a channel follows its first batch; without event time there is none. Until
# this wait ends the two cases look the same, and both hold the output watermark back.
FIRST_WATERMARK_S = 5.0
ENDED_STREAM_KEPT_S = 60.0


@dataclass(frozen=True, slots=True)
class EndedStream:
    """The channels of one dimension, with less than a minute between them."""

    dimension: str
    origin: str  # as the last channel says
    channels: int  # that had lookups
    keys: int  # a lookup has each key once
    watermark_ms: int | None  # that the streams of the dimension reached
    ended_ago_s: float


@dataclass(slots=True, eq=False)
class DimensionStreams:
    """The channels of one dimension: merged watermark, costs of records, and the last stream.

    A valve exists from the first watermark until no channel is open; see docs/decisions/006.
    Between two micro-batches of a streaming query no channel is open; its figures stay.
    """

    newest_costs: RecordCosts  # a new channel starts with a copy of these
    kept_watermark_ms: int | None = None  # when the last valve was dropped
    valve: WatermarkValve[int] | None = None
    # {channel without a watermark: when it leaves the valve}, oldest first
    unmarked: dict[ServerChannel, float] = field(default_factory=dict)
    open_count: int = 0
    last_origin: str = ""
    channels: int = 0  # with lookups, that ended
    keys: int = 0
    last_ended_at: float = -inf

    def open(self, channel: ServerChannel, now: float) -> None:
        """Add a channel; a stream begins if none has ended within the last minute."""
        if not self.open_count and now - self.last_ended_at > ENDED_STREAM_KEPT_S:
            self.channels = self.keys = 0
        self.open_count += 1
        self.newest_costs = channel.costs
        self.unmarked[channel] = now + FIRST_WATERMARK_S
        if self.valve is not None:
            self.valve.add(channel.id)

    def close(self, channel: ServerChannel, now: float) -> None:
        """Remove a channel; the last one drops the valve."""
        if self.valve is not None:
            self.expire(now)
            self.valve.remove(channel.id)
        self.unmarked.pop(channel, None)
        self.open_count -= 1
        if not self.open_count and self.valve is not None:
            self.kept_watermark_ms, self.valve = self.watermark_ms, None
        if channel.keys_total:  # otherwise it has only described the dimension
            self.channels += 1
            self.keys += channel.keys_total
            self.last_origin, self.last_ended_at = channel.opened.origin, now

    def on_watermark(self, channel: ServerChannel, watermark_ms: int, now: float) -> None:
        """Advance a channel's watermark; the maximal one removes the channel from the valve."""
        self.expire(now)
        self.unmarked.pop(channel, None)
        if self.valve is None:
            self.valve = WatermarkValve()
            for each in self.unmarked:
                self.valve.add(each.id)
                self.valve.on_status(each.id, is_idle=each.is_idle)
        has_ended = channel.watermark_ms == MAX_WATERMARK_MS
        if channel.watermark_ms is None or watermark_ms > channel.watermark_ms:
            channel.watermark_ms = watermark_ms
        if watermark_ms == MAX_WATERMARK_MS:
            self.valve.remove(channel.id)
        elif not has_ended:
            self.valve.add(channel.id)
            self.valve.on_status(channel.id, is_idle=channel.is_idle)
            self.valve.on_watermark(channel.id, watermark_ms)

    def on_status(self, channel: ServerChannel, *, is_idle: bool) -> None:
        """Mark a channel idle or active."""
        channel.is_idle = is_idle
        if self.valve is not None and channel.id in self.valve:
            self.valve.on_status(channel.id, is_idle=is_idle)

    def expire(self, now: float) -> None:
        """Let channels without a watermark leave the valve, in their time."""
        while self.unmarked and next(iter(self.unmarked.values())) <= now:
            channel = next(iter(self.unmarked))
            del self.unmarked[channel]
            if self.valve is not None:
                self.valve.remove(channel.id)

    @property
    def watermark_ms(self) -> int | None:
        """The event time that the channels have reached; the last one until they have one."""
        if self.valve is None or self.valve.watermark_ms == NO_WATERMARK_MS:
            return self.kept_watermark_ms
        return self.valve.watermark_ms


class ChannelRegistry:
    """Admits channels within the limits, and lists them; `now` is monotonic seconds."""

    def __init__(
        self,
        credit: CreditLedger[int],
        *,
        answer_bytes: int,
        guess_bytes: int = FIRST_GUESS_BYTES,
    ) -> None:
        """`answer_bytes`: the budget of unsent answers; `guess_bytes`: a row before the first."""
        self.turns = LookupTurns(answer_bytes)
        self._credit = credit
        self._first_costs = RecordCosts(size=AnswerSize(guess_bytes))
        self._streams: dict[str, DimensionStreams] = {}
        self._ids = count(1)  # 0 is the scheduler channel of HTTP lookups
        self._channels: dict[int, ServerChannel] = {}
        self._next_silent_at_s = 0.0  # no channel is silent for long before

    def admit(
        self, connection: int, schema: ChannelSchema, now: float
    ) -> tuple[ServerChannel, ServerChannel | None]:
        """A new channel with its share of credit, and the one that was revoked for it, if any.

        If no share is left, it gets that of the channel that has been silent for longest, which
        its connection must `revoke`. Raises Overloaded if none has been silent for `SILENT_S`, and
        while no memory is left for another channel.
        """
        if not self._credit.may_lend:
            detail = "memory is used up; raise limits.memory"
            raise Overloaded(ErrorCode.OVERLOADED, detail)
        number, revoked = next(self._ids), None
        if self._credit.open(number) is None:
            revoked = self._remove_silent(now)
            if revoked is None:
                raise Overloaded(ErrorCode.OVERLOADED, self._shortage())
            self._credit.open(number)  # with the share of that one
        dimension = schema.requested.dimension
        if dimension not in self._streams:
            self._streams[dimension] = DimensionStreams(self._first_costs)
        streams = self._streams[dimension]
        channel = self._channels[number] = ServerChannel(
            number,
            connection,
            schema=schema,
            costs=deepcopy(streams.newest_costs),
            ledger=self._credit,
            now=now,
        )
        streams.open(channel, now)
        return channel, revoked

    def streams_of(self, channel: ServerChannel) -> DimensionStreams:
        """The channels of its dimension."""
        return self._streams[channel.opened.dimension]

    def remove(self, channel: ServerChannel, now: float) -> None:
        """Return the credit of a channel; a no-op if the channel was removed before."""
        if self._channels.pop(channel.id, None) is not None:
            self._credit.close(channel.id)
            self._streams[channel.opened.dimension].close(channel, now)

    def allow_growth(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Set whether channels may be opened and get floating credit; open ones stay open."""
        self._credit.may_lend = is_allowed

    def statistics(self) -> list[ChannelStatistics]:
        """All channels, oldest first."""
        return [channel.statistics() for channel in self._channels.values()]

    def watermarks_ms(self, now: float) -> dict[str, int]:
        """The event time that the streams of each dimension have reached, if any.

        It never decreases while a channel is open, and is kept while none is.
        """
        for streams in self._streams.values():
            streams.expire(now)
        known = {name: streams.watermark_ms for name, streams in self._streams.items()}
        return {name: mark for name, mark in known.items() if mark is not None}

    def ended_streams(self, now: float) -> list[EndedStream]:
        """The streams without an open channel that ended within the last minute."""
        watermarks_ms = self.watermarks_ms(now)
        return [
            EndedStream(
                dimension=name,
                origin=streams.last_origin,
                channels=streams.channels,
                keys=streams.keys,
                watermark_ms=watermarks_ms.get(name),
                ended_ago_s=now - streams.last_ended_at,
            )
            for name, streams in sorted(self._streams.items())
            if not streams.open_count and now - streams.last_ended_at <= ENDED_STREAM_KEPT_S
        ]

    def check_invariants(self) -> None:
        """For tests: all parts agree on the open channels."""
        self.turns.check_invariants()
        self._credit.check_invariants()
        channels = self._channels.values()
        for channel in channels:
            channel.check_invariants()
        lookups = [lookup for channel in channels for lookup in channel.lookups.values()]
        assert len(self.turns) == sum(lookup.queued_records > 0 for lookup in lookups)
        for name, streams in self._streams.items():
            own = {each for each in channels if each.opened.dimension == name}
            assert streams.open_count == len(own)
            assert streams.unmarked.keys() <= own
            if streams.valve is not None:
                assert own
                streams.valve.check_invariants()

    def _remove_silent(self, now: float) -> ServerChannel | None:
        if now < self._next_silent_at_s or not self._channels:
            return None
        longest = max(self._channels.values(), key=lambda each: each.silent_for_s(now))
        silent_for_s = longest.silent_for_s(now)
        if silent_for_s < SILENT_S:
            # Refused clients retry: do not visit all channels each time.
            self._next_silent_at_s = now + SILENT_S - silent_for_s
            return None
        self.remove(longest, now)
        return longest

    def _shortage(self) -> str:
        if self._credit.is_full:
            limit, key = "which is the limit", "limits.channels"
        else:
            limit, key = "which use all memory for lookups", "limits.memory"
        return (
            f"{len(self._channels)} channels are open, {limit}, and none has been silent for"
            f" {SILENT_S:g} s; raise {key}"
        )
