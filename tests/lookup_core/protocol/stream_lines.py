"""Stream servers of one registry, with lines to clients: frames in, frames and parts out.

The dimensions have a text key `id` and a text column `name`; a test answers their lookups.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.channel_registry import ChannelRegistry
from lookup_core.protocol.credit_ledger import CreditLedger, Grant
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.server_channel import ChannelSchema, ChannelStatistics, LookupPart
from lookup_core.protocol.stream_effects import (
    Describe,
    Effect,
    Leave,
    Offer,
    Received,
    Revoke,
    Submit,
)
from lookup_core.protocol.stream_server import StreamServer
from tests.lookup_core.protocol.channel_frames import COLUMNS, KEY, fetched, sent_keys

AGENT = "sidelook/test"
MIB = 1024 * 1024
POOL_BYTES = 2 * 24 * 1024  # for each possible channel
DESCRIBED = DimensionSchema(KEY, COLUMNS)

_F = TypeVar("_F", bound=Frame)


def opening(channel: int = 1, dimension: str = "customers", origin: str = "task 7") -> frames.Open:
    """An OPEN."""
    return frames.Open(channel, dimension, None, origin, KEY)


def lookup(
    sequence: int, *keys: str, channel: int = 1, backlog: int = 0, timeout_ms: int = 10_000
) -> frames.Lookup:
    """A LOOKUP of these keys."""
    payload = encode_batch(sent_keys(1, *keys).keys)
    return frames.Lookup(channel, sequence, timeout_ms, backlog, payload)


@dataclass(slots=True)
class StreamService:
    """Server objects of all connections."""

    pool_bytes: int = 10 * POOL_BYTES
    channels: int = 10
    answer_bytes: int = 64 * MIB
    guess_bytes: int = 100
    now: float = 100.0
    registry: ChannelRegistry = field(init=False)
    lines: dict[int, "Line"] = field(default_factory=dict)  # {connection: line}

    def __post_init__(self) -> None:
        """Share one registry."""
        ledger = CreditLedger[int](self.pool_bytes, max_channels=self.channels)
        self.registry = ChannelRegistry(
            ledger, answer_bytes=self.answer_bytes, guess_bytes=self.guess_bytes
        )

    @property
    def used_bytes(self) -> int:
        """The bytes that are held for answers."""
        return self.registry.turns.used_bytes

    def connect(self) -> "Line":
        """A connection after WELCOME."""
        number = len(self.lines) + 1
        server = StreamServer(number, self.registry, agent=AGENT)
        line = self.lines[number] = Line(self, server)
        line.send(frames.Hello((1,), "a test"))
        assert line.received() == [frames.Welcome(1, AGENT)]
        return line

    def opened(self, channel: int = 1, dimension: str = "customers") -> "Line":
        """A connection with this channel open, OPENED included."""
        line = self.connect()
        line.open(channel, dimension)
        return line

    def next_part(self) -> tuple[int, int, int] | None:
        """Submit the next part: its connection, first record and number of records."""
        submit = self.registry.turns.next_part()
        if submit is None:
            return None
        channel = submit.part.lookup.channel
        self.lines[channel.connection].parts.append(submit.part)
        return channel.connection, submit.part.start, submit.keys.num_rows

    def all_parts(self) -> list[tuple[int, int, int]]:
        """Submit parts while there are some."""
        parts = []
        while (part := self.next_part()) is not None:
            self.check()
            parts.append(part)
        return parts

    def time_out(self) -> None:
        """End the queued lookups that are overdue."""
        for overdue in self.registry.turns.pop_overdue(self.now):
            server = self.lines[overdue.channel.connection].server
            server.time_out(overdue, self.now, reasons={})

    def check(self) -> None:
        """Check the invariants of all servers."""
        for line in self.lines.values():
            line.server.check_invariants()


@dataclass(slots=True)
class Line:
    """One connection."""

    service: StreamService
    server: StreamServer
    parts: list[LookupPart] = field(default_factory=list)  # submitted, oldest first
    effects: list[Effect] = field(default_factory=list)  # others

    def send(self, *sending: Frame) -> None:
        """The client sends frames, which arrive; effects are noted."""
        for frame in sending:
            self.carry_out(self.server.receive(encode_frame(frame), self.service.now))

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Accept requested channels, and note all other effects."""
        for effect in effects:
            match effect:
                case Describe(requested):
                    offer = Offer(ChannelSchema(requested, DESCRIBED))
                    self.carry_out(self.server.accept(requested, offer, self.service.now))
                case Submit(part):
                    self.parts.append(part)
                case Leave(parts=parts):
                    self.parts = [part for part in self.parts if part not in parts]
                    self.effects.append(effect)
                case Revoke(connection, channel):
                    self.service.lines[connection].server.revoke(channel, self.service.now)
                case Received():
                    pass
                case _:
                    self.effects.append(effect)

    def received(self) -> list[Frame]:
        """All frames that the server sends now; the client reads them."""
        found: list[Frame] = []
        while (message := self.server.message_to_send(self.service.now)) is not None:
            found.append(decode_frame(message))
        return found

    def next_frame(self) -> Frame:
        """The next frame; the one before was sent."""
        message = self.server.message_to_send(self.service.now)
        assert message is not None
        return decode_frame(message)

    def receive(self, kind: type[_F]) -> _F:
        """The only frame that the server sends now, which is of this kind."""
        (frame,) = self.received()
        assert isinstance(frame, kind), frame
        return frame

    def open(self, channel: int = 1, dimension: str = "customers") -> frames.Opened:
        """Open a channel."""
        self.send(opening(channel, dimension))
        return self.receive(frames.Opened)

    def answer(
        self, *positions: int, part: int = 0, names: str = "x", reason: str | None = None
    ) -> None:
        """Answer positions of a submitted part with rows; without positions, the whole part."""
        submitted = self.parts[part]
        answer = fetched(dict.fromkeys(positions or range(submitted.unanswered), names))
        reasons = {} if reason is None else {ErrorCode.VALUE_REJECTED: reason}
        self.server.on_answer(submitted, answer, self.service.now, reasons=reasons)
        if not submitted.unanswered:
            del self.parts[part]

    def look_up(self, sequence: int, count: int, *, size: int = 1, backlog: int = 0) -> Grant:
        """Look up this number of keys of this size; returns the cost."""
        frame = lookup(sequence, *["k" * size] * count, backlog=backlog)
        self.send(frame)
        return Grant(count, len(frame.payload))

    def statistics(self, channel: int = 1) -> ChannelStatistics:
        """The levels of a channel."""
        (found,) = (
            each
            for each in self.service.registry.statistics()
            if (each.connection, each.channel) == (self.server.number, channel)
        )
        return found

    def close(self) -> None:
        """The connection is lost."""
        self.carry_out(self.server.close(self.service.now))
