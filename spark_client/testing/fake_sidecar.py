"""Fake sidecar: the service's side of the protocol, over dimensions in Arrow tables.

It checks the client's frames as the service does; it has no clock, network or thread.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lookup_core.answer import Answer
from lookup_core.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    bad_frame,
    unknown_dimension,
)
from lookup_core.keys.typed_keys import KeyCasts
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.testing.served_dimension import ServedDimension

AGENT = "fake-sidecar"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Credit, and the size and order of the answers."""

    credit_records: int = 1_000
    credit_bytes: int = 1_000_000
    part_size: int | None = None  # keys of one RESULT; None: one for each outcome
    seed: int | None = None  # shuffles the parts that wait; None: they come in order
    is_silent: bool = False  # takes lookups and never answers
    returns_credit: bool = True  # False: CREDIT is always 0, as if other channels needed it
    version: int = frames.PROTOCOL_VERSION
    cache: str | None = None  # the folder of a shared cache


@dataclass(slots=True)
class Memory:
    """State of a sidecar over all its connections."""

    received: list[Frame] = field(default_factory=list)  # without HELLO
    refusals: list[frames.Failure] = field(default_factory=list)  # for the next OPENs, one each
    chance: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class _Channel:
    opened: frames.Open
    dimension: ServedDimension
    columns: tuple[str, ...]
    casts: KeyCasts | None  # None: the channel only describes
    records_left: int
    bytes_left: int
    sequence: int = 0


@dataclass(slots=True)
class _Waiting:
    lookup: frames.Lookup
    records: int
    parts: list[Answer]


class FakePeer:
    """The service's side of one connection, of `sidelook.v1`; called by one thread at a time."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour, memory: Memory
    ) -> None:
        self._dimensions = dimensions
        self._behaviour = behaviour
        self._memory = memory
        self._channels: dict[int, _Channel] = {}
        self._waiting: list[_Waiting] = []

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""
        frame = decode_frame(message)
        if isinstance(frame, frames.Hello):
            return [encode_frame(frames.Welcome(self._behaviour.version, AGENT))]
        self._memory.received.append(frame)
        return [encode_frame(reply) for reply in self._replies(frame)]

    def more(self) -> Sequence[bytes]:
        """Later messages: the next part that waits, or all of them without a seed."""
        sent: list[Frame] = []
        while self._waiting and not self._behaviour.is_silent:
            if self._behaviour.seed is not None:
                sent = self._next_part(self._memory.chance.choice(self._waiting))
                break
            sent += self._next_part(self._waiting[0])
        return [encode_frame(frame) for frame in sent]

    def _replies(self, frame: Frame) -> list[Frame]:
        match frame:
            case frames.Open():
                return [self._open(frame)]
            case frames.Lookup():
                self._take(frame)
            case frames.Cancel(channel=channel, sequence=sequence):
                for each in self._waiting:
                    if (each.lookup.channel, each.lookup.sequence) == (channel, sequence):
                        return [self._end(each)]
            case frames.Close():
                is_open = self._channels.pop(frame.channel, None) is not None
                return [frames.Closed(frame.channel)] if is_open else []
            case frames.Watermark() | frames.Status() | frames.Cached():
                self._channel(frame.channel)
            case _:
                raise bad_frame("not a client's frame")
        return []

    def _open(self, opened: frames.Open) -> frames.Opened | frames.Failure:
        if self._memory.refusals:
            return replace(self._memory.refusals.pop(0), channel=opened.channel)
        dimension = self._dimensions.get(opened.dimension)
        if dimension is None:
            refusal = unknown_dimension(opened.dimension, self._dimensions)
            return _failure(opened, refusal.code, refusal.detail)
        columns = dimension.columns if opened.columns is None else opened.columns
        unknown = sorted(set(columns) - set(dimension.columns))
        if unknown:
            return _failure(opened, ErrorCode.UNKNOWN_COLUMN, f"no column {', '.join(unknown)}")
        if opened.is_as_of:
            if dimension.versions is None:
                return _failure(opened, ErrorCode.BAD_REQUEST, "it has no versions")
            columns += tuple(name for name in dimension.versions.names if name not in columns)
        try:
            casts = dimension.casts(opened.key)
        except InvalidRequest as refusal:
            return _failure(opened, refusal.code, refusal.detail)
        credit = self._behaviour.credit_records, self._behaviour.credit_bytes
        self._channels[opened.channel] = _Channel(opened, dimension, columns, casts, *credit)
        default = dimension.default_row(columns) if opened.wants_default else None
        return frames.Opened(
            *(opened.channel, *credit, dimension.schema(columns), dimension.key),
            versions=dimension.versions,
            waits=dimension.waits,
            cache=self._behaviour.cache,
            has_all_rows=dimension.has_all_rows,
            default=None if default is None else bytes(encode_batch(default)),
            options=opened.options,  # its rows never change, and it knows no keys to come
        )

    def _take(self, lookup: frames.Lookup) -> None:
        channel = self._channel(lookup.channel)
        keys = decode_batch(lookup.payload, channel.opened.key)
        channel.sequence += 1
        channel.records_left -= keys.num_rows
        channel.bytes_left -= len(lookup.payload)
        if lookup.sequence != channel.sequence:
            raise ProtocolViolation(ErrorCode.SEQUENCE_GAP, f"not {channel.sequence}")
        if channel.records_left < 0 or channel.bytes_left < 0:
            raise ProtocolViolation(ErrorCode.CREDIT_VIOLATION, "more than the credit")
        if channel.casts is None:
            raise bad_frame("LOOKUP on a channel without a key")
        answers = channel.dimension.answers(channel.casts.typed_keys(keys), channel.columns)
        parts = [part for answer in answers for part in self._split(answer)]
        self._waiting.append(_Waiting(lookup, keys.num_rows, parts))

    def _split(self, answer: Answer) -> Iterator[Answer]:
        size = self._behaviour.part_size or answer.size
        for start in range(0, answer.size, size):
            part = slice(start, start + size)
            positions = answer.positions[part]
            rows = None if answer.rows is None else answer.rows.slice(start, size)
            errors = {place: code for place, code in answer.errors.items() if place in positions}
            yield Answer(positions, answer.outcomes[part], answer.ages_ms[part], rows, errors)

    def _next_part(self, waiting: _Waiting) -> list[Frame]:
        part = waiting.parts.pop(0)
        lookup, is_last = waiting.lookup, not waiting.parts
        payload = encode_batch(answer_batch(part))
        has_rows = part.rows is not None
        result = frames.Result(lookup.channel, lookup.sequence, is_last, has_rows, payload)
        return [result, self._end(waiting)] if is_last else [result]

    def _end(self, waiting: _Waiting) -> frames.Credit:
        self._waiting.remove(waiting)
        lookup = waiting.lookup
        if not self._behaviour.returns_credit:
            return frames.Credit(lookup.channel, 0, 0)
        channel = self._channels.get(lookup.channel)
        if channel is not None:
            channel.records_left += waiting.records
            channel.bytes_left += len(lookup.payload)
        return frames.Credit(lookup.channel, waiting.records, len(lookup.payload))

    def _channel(self, number: int) -> _Channel:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number]


class MemorySidecar:
    """One sidecar process; any thread may connect, any number of times."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour | None = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self._dimensions = dimensions

    @property
    def names(self) -> list[str]:
        """The names of the dimensions, sorted."""
        return sorted(self._dimensions)

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for any transport."""
        return FakePeer(self._dimensions, self.behaviour, self.memory)


def _failure(opened: frames.Open, code: ErrorCode, detail: str) -> frames.Failure:
    return frames.Failure(opened.channel, code, detail, code.is_retryable)
