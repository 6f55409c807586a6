"""In-memory sidecar for tests: a dimension in a dict, and a peer that checks the protocol."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, ProtocolViolation, SidecarUnreachable, unknown_dimension
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.transport.memory_transport import MemoryTransport

AGE_MS = 7  # of every row

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FakeDimension:
    """A table that is looked up by some of its columns."""

    table: pa.Table
    key: tuple[str, ...]
    errors: Mapping[Key, ErrorCode] = field(default_factory=dict)
    versions: VersionColumns | None = None  # then a key has several rows, which are told as lists
    waits: bool = False  # what it tells; it has nothing to wait for

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns but the key's."""
        return tuple(name for name in self.table.column_names if name not in self.key)

    def answers(self, keys: pa.RecordBatch, columns: tuple[str, ...]) -> list[Answer]:
        """Every key answered: those with a row, those without, those with an error."""
        rows = self._rows_by_key()
        asked = _keys(keys)
        places = np.arange(len(asked), dtype=np.int32)
        is_error = np.array([key in self.errors for key in asked], np.bool_)
        is_hit = np.array([None not in key and key in rows for key in asked], np.bool_) & ~is_error
        wanted = [rows[asked[place]] for place in places[is_hit].tolist()]
        errors = {place: self.errors[asked[place]] for place in places[is_error].tolist()}
        answers = [
            _answer(places[is_hit], Outcome.HIT, rows=self._rows(wanted, columns)),
            _answer(places[~is_hit & ~is_error], Outcome.MISSING),
            _answer(places[is_error], Outcome.ERROR, errors=errors),
        ]
        return [answer for answer in answers if answer.size]

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """What rows of these columns consist of."""
        fields = [self.table.schema.field(name) for name in columns]
        if self.versions is None:
            return pa.schema(fields)
        return pa.schema([pa.field(each.name, pa.list_(each.type)) for each in fields])

    def _rows_by_key(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for row, key in enumerate(_keys(self.table.select(list(self.key)))):
            found.setdefault(key, []).append(row)
        if self.versions is not None:
            begins = self.table.column(self.versions.valid_from).to_pylist()
            for rows in found.values():
                rows.sort(key=lambda row: () if begins[row] is None else (begins[row],))
        return found

    def _rows(self, rows: list[list[int]], columns: tuple[str, ...]) -> pa.RecordBatch:
        schema = self.schema(columns)
        values = [self.table.column(name).to_pylist() for name in columns]
        told = [
            [[column[row] for row in each] if self.versions else column[each[-1]] for each in rows]
            for column in values
        ]
        arrays = [pa.array(column, each.type) for column, each in zip(told, schema, strict=True)]
        return pa.record_batch(arrays, schema=schema)


def _answer(
    positions: npt.NDArray[np.int32],
    outcome: Outcome,
    *,
    rows: pa.RecordBatch | None = None,
    errors: dict[int, ErrorCode] | None = None,
) -> Answer:
    count = len(positions)
    ages_ms = np.full(count, 0 if rows is None else AGE_MS, np.uint32)
    return Answer(positions, np.full(count, outcome, np.uint8), ages_ms, rows, errors or {})


def _keys(columns: pa.RecordBatch | pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


AGENT = "fake-sidecar"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the fake answers."""

    credit_records: int = 1_000
    credit_bytes: int = 1_000_000
    part_size: int | None = None  # keys of one RESULT; None: as many as there are
    seed: int | None = None  # shuffles the parts that wait; None: they come in order
    is_silent: bool = False  # takes lookups and never answers
    returns_credit: bool = True  # False: other channels need it, so that CREDIT is of nothing
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
        records, size = waiting.records, len(lookup.payload)
        if not self._behaviour.returns_credit:
            records = size = 0
        channel = self._channels.get(lookup.channel)
        if channel is not None:
            channel.records_left += records
            channel.bytes_left += size
        return frames.Credit(lookup.channel, records, size)

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


URL = "memory:"


class FakeSidecar:
    """One sidecar process; `connect` as often as you like, from any thread."""

    def __init__(
        self, dimensions: Mapping[str, FakeDimension], behaviour: Behaviour | None = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self.connection_count = 0
        self.is_down = False
        self._dimensions = dimensions
        self._transports: list[MemoryTransport] = []

    def connect(self) -> MemoryTransport:
        """A new connection; raises SidecarUnreachable while the sidecar is down."""
        if self.is_down:
            raise SidecarUnreachable(URL, "it is down")
        self.connection_count += 1
        transport = MemoryTransport(self.new_peer())
        self._transports.append(transport)
        return transport

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for whatever carries it."""
        return FakePeer(self._dimensions, self.behaviour, self.memory)

    def crash(self) -> None:
        """All connections are lost; what was not answered never will be."""
        for transport in self._transports:
            transport.lose("crashed")

    def tell(self, frame: Frame) -> None:
        """Send a frame to everyone."""
        for transport in self._transports:
            transport.deliver([encode_frame(frame)])
