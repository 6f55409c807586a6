"""One connection to a sidecar in memory, for tests: holds its client to the protocol.

Answers as well or as badly as it is told; the rows are `fake_dimension`'s.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.unknown_dimension import unknown_dimension
from spark_client.fake_dimension import FakeDimension

AGENT = "fake-sidecar"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the fake answers."""

    credit_records: int = 1_000
    credit_bytes: int = 1_000_000
    part_size: int | None = None  # keys of one RESULT; None: as many as there are
    seed: int | None = None  # shuffles the parts that wait; None: they come in order
    is_silent: bool = False  # takes lookups and never answers
    version: int = frames.PROTOCOL_VERSION


@dataclass(slots=True)
class Memory:
    """What a sidecar remembers over all its connections."""

    received: list[Frame] = field(default_factory=list)  # without HELLO
    refusals: list[frames.Failure] = field(default_factory=list)  # for the next OPENs, one each
    chance: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class _Channel:
    opened: frames.Open
    dimension: FakeDimension
    columns: tuple[str, ...]
    records_left: int
    bytes_left: int
    sequence: int = 0


@dataclass(slots=True)
class _Waiting:
    lookup: frames.Lookup
    records: int
    parts: list[Answer]


class FakePeer:
    """A `MemoryPeer` that speaks the service's side of `sidelook.v1`."""

    def __init__(
        self, dimensions: Mapping[str, FakeDimension], behaviour: Behaviour, memory: Memory
    ) -> None:
        self._dimensions = dimensions
        self._behaviour = behaviour
        self._memory = memory
        self._channels: dict[int, _Channel] = {}
        self._waiting: list[_Waiting] = []

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """See `MemoryPeer`."""
        frame = decode_frame(message)
        if isinstance(frame, frames.Hello):
            return [encode_frame(frames.Welcome(self._behaviour.version, AGENT))]
        self._memory.received.append(frame)
        return [encode_frame(reply) for reply in self._replies(frame)]

    def more(self) -> Sequence[bytes]:
        """See `MemoryPeer`: the next part that waits, or all of them without a seed."""
        if self._behaviour.is_silent or not self._waiting:
            return []
        if self._behaviour.seed is None:
            return [encode_frame(frame) for frame in self._all_parts()]
        waiting = self._memory.chance.choice(self._waiting)
        return [encode_frame(frame) for frame in self._next_part(waiting)]

    def _replies(self, frame: Frame) -> list[Frame]:
        match frame:
            case frames.Open():
                return [self._open(frame)]
            case frames.Lookup():
                self._take(frame)
            case frames.Cancel():
                return [self._end(each) for each in list(self._waiting) if _is_for(each, frame)]
            case frames.Close():
                is_open = self._channels.pop(frame.channel, None) is not None
                return [frames.Closed(frame.channel)] if is_open else []
            case frames.Watermark() | frames.Status():
                self._channel(frame.channel)
            case _:
                raise ProtocolViolation(ErrorCode.BAD_FRAME, "not a client's frame")
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
        if len(opened.key) not in {0, len(dimension.key)}:
            return _failure(opened, ErrorCode.KEY_TYPE, f"the key is {dimension.key}")
        credit = self._behaviour.credit_records, self._behaviour.credit_bytes
        self._channels[opened.channel] = _Channel(opened, dimension, columns, *credit)
        schema, versions, waits = dimension.schema(columns), dimension.versions, dimension.waits
        return frames.Opened(opened.channel, *credit, schema, dimension.key, versions, waits)

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
        names = channel.dimension.key
        if set(channel.opened.key.names) == set(names):
            keys = keys.select(list(names))  # by name, otherwise by position
        answers = channel.dimension.answers(keys, channel.columns)
        parts = [part for answer in answers for part in self._split(answer)]
        self._waiting.append(_Waiting(lookup, keys.num_rows, parts))

    def _split(self, answer: Answer) -> Iterator[Answer]:
        size = self._behaviour.part_size or answer.size
        for start in range(0, answer.size, size):
            stop = start + size
            positions = answer.positions[start:stop]
            yield Answer(
                positions,
                answer.outcomes[start:stop],
                answer.ages_ms[start:stop],
                None if answer.rows is None else answer.rows.slice(start, size),
                {place: code for place, code in answer.errors.items() if place in positions},
            )

    def _all_parts(self) -> Iterator[Frame]:
        while self._waiting:
            yield from self._next_part(self._waiting[0])

    def _next_part(self, waiting: _Waiting) -> list[Frame]:
        part = waiting.parts.pop(0)
        payload = encode_batch(_batch(part))
        lookup, is_last = waiting.lookup, not waiting.parts
        has_rows = part.rows is not None
        result = frames.Result(lookup.channel, lookup.sequence, is_last, has_rows, payload)
        return [result, self._end(waiting)] if is_last else [result]

    def _end(self, waiting: _Waiting) -> frames.Credit:
        self._waiting.remove(waiting)
        lookup = waiting.lookup
        channel = self._channels.get(lookup.channel)
        if channel is not None:
            channel.records_left += waiting.records
            channel.bytes_left += len(lookup.payload)
        return frames.Credit(lookup.channel, waiting.records, len(lookup.payload))

    def _channel(self, number: int) -> _Channel:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number]


def _batch(answer: Answer) -> pa.RecordBatch:
    assert np.unique(answer.positions).size == answer.size
    return answer_batch(answer)


def _failure(opened: frames.Open, code: ErrorCode, detail: str) -> frames.Failure:
    return frames.Failure(opened.channel, code, detail, code.is_retryable)


def _is_for(waiting: _Waiting, cancel: frames.Cancel) -> bool:
    lookup = waiting.lookup
    return (lookup.channel, lookup.sequence) == (cancel.channel, cancel.sequence)
