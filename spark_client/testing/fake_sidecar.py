"""In-memory sidecar for tests: a transport, a protocol peer and dimensions in Arrow tables.

The peer checks the client's frames as the service does; it has no clock, network or thread.
"""

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidecarUnreachable,
    SidelookError,
    bad_frame,
    unknown_dimension,
)
from lookup_core.keys.typed_keys import KeyCasts, TypedKeys
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame

AGE_MS = 7  # of every row
AGENT = "fake-sidecar"
URL = "memory:"

Key = tuple[object, ...]


class MemoryPeer(Protocol):
    """The other end of a `MemoryTransport`; called by one thread at a time."""

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""

    def more(self) -> Sequence[bytes]:
        """Later messages; called with each `receive`."""


class MemoryTransport:
    """A `Transport` to a peer in the same process; waits and wakes like a socket."""

    def __init__(self, peer: MemoryPeer) -> None:
        self._peer = peer
        self._changed = threading.Condition()
        self._inbox: list[bytes] = []
        self._failure: SidelookError | None = None
        self._is_woken = False

    def send(self, message: bytes) -> None:
        """See `Transport`."""
        with self._changed:
            if self._failure is None:
                try:
                    self._inbox.extend(self._peer.on_message(message))
                except SidelookError as error:
                    self._failure = error
                self._wake()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`."""
        with self._changed:
            self._changed.wait_for(self._has_something, timeout_s)
            self._is_woken = False
            inbox, self._inbox = self._inbox, []
            if self._failure is not None and not inbox:
                raise self._failure
            return inbox

    def wake(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._wake()

    def close(self) -> None:
        """See `Transport`."""
        self.lose("closed by the client")

    def disown(self) -> None:
        """See `Transport`; there are no descriptors."""

    def deliver(self, messages: Sequence[bytes]) -> None:
        """Send from the peer's side."""
        with self._changed:
            self._inbox.extend(messages)
            self._changed.notify()

    def lose(self, reason: str) -> None:
        """Break the connection; messages that have arrived are still delivered."""
        with self._changed:
            self._failure = self._failure or SidecarUnreachable("memory", reason)
            self._changed.notify()

    def _wake(self) -> None:
        self._is_woken = True
        self._changed.notify()

    def _has_something(self) -> bool:
        if self._failure is None:
            self._inbox.extend(self._peer.more())
        return bool(self._inbox or self._is_woken or self._failure)


@dataclass(frozen=True, slots=True)
class FakeDimension:
    """A table that is looked up by some of its columns."""

    table: pa.Table
    key: tuple[str, ...]
    errors: Mapping[Key, ErrorCode] = field(default_factory=dict)
    versions: VersionColumns | None = None  # a key then has several rows, sent as lists
    waits: bool = False  # sent in OPENED; it has nothing to wait for
    has_all_rows: bool = False  # a key may have several rows, sent as lists
    default: Mapping[str, object] | None = None  # sent in OPENED
    fills_missing: bool = False  # missing keys get the default row, too, as from the service
    _rows_of: dict[Key, list[int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for row, key in enumerate(_keys(self.table.select(list(self.key)))):
            self._rows_of.setdefault(key, []).append(row)
        if self.versions is not None:
            begins = self.table.column(self.versions.valid_from).to_pylist()
            for rows in self._rows_of.values():
                rows.sort(key=lambda row: () if begins[row] is None else (begins[row],))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns but the key's."""
        return tuple(name for name in self.table.column_names if name not in self.key)

    def casts(self, given: pa.Schema) -> KeyCasts | None:
        """Casts of keys by position, or by name; None for none.

        Raises InvalidRequest as the service does.
        """
        if len(given) not in {0, len(self.key)}:
            raise InvalidRequest(ErrorCode.KEY_TYPE, f"the key is {self.key}")
        if not len(given):
            return None
        key = pa.schema([self.table.schema.field(name) for name in self.key])
        if set(given.names) != set(self.key):
            given = pa.schema(list(map(pa.Field.with_name, given, self.key)))
        return KeyCasts(given, DimensionSchema(key, pa.schema([])))

    def answers(self, keys: TypedKeys, columns: tuple[str, ...]) -> list[Answer]:
        """Answers for all keys: with a row, missing or with the default, and with an error."""
        rows = self._rows_of
        wanted = _keys(keys.columns)
        for place in keys.nulls.tolist():
            wanted[place] = (None,)
        codes = {place: self.errors[key] for place, key in enumerate(wanted) if key in self.errors}
        codes |= keys.faults
        places = np.arange(len(wanted), dtype=np.int32)
        is_error = np.isin(places, list(codes))
        is_hit = np.array([None not in key and key in rows for key in wanted], np.bool_) & ~is_error
        hits, failed, missing = places[is_hit], places[is_error], places[~is_hit & ~is_error]
        found = self._rows([rows[wanted[place]] for place in hits.tolist()], columns)
        outcomes = np.full(len(hits), Outcome.HIT, np.uint8)
        ages_ms = np.full(len(hits), AGE_MS, np.uint32)
        errors = {place: codes[place] for place in failed.tolist()}
        is_late = [code is ErrorCode.TIMEOUT for code in errors.values()]
        answers = [
            Answer(hits, outcomes, ages_ms, found),
            self._missing(missing, columns),
            replace(
                rowless_answer(failed, Outcome.ERROR),
                outcomes=np.where(is_late, Outcome.TIMEOUT, Outcome.ERROR).astype(np.uint8),
                errors=errors,
            ),
        ]
        return [answer for answer in answers if answer.size]

    def _missing(self, places: np.ndarray, columns: tuple[str, ...]) -> Answer:
        row = self.default_row(columns) if self.fills_missing else None
        if row is None:
            return rowless_answer(places, Outcome.MISSING)
        rows = row.take(pa.array(np.zeros(len(places), np.int32)))
        outcomes = np.full(len(places), Outcome.DEFAULT, np.uint8)
        return Answer(places, outcomes, np.zeros(len(places), np.uint32), rows)

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """The schema of rows with these columns."""
        fields = [self.table.schema.field(name) for name in columns]
        if not self._has_lists:
            return pa.schema(fields)
        return pa.schema([pa.field(each.name, pa.list_(each.type)) for each in fields])

    def default_row(self, columns: tuple[str, ...]) -> pa.RecordBatch | None:
        """The default row with these columns."""
        if self.default is None:
            return None
        schema = self.schema(columns)
        values = [pa.array([self.default.get(each.name)], each.type) for each in schema]
        return pa.record_batch(values, schema=schema)

    @property
    def _has_lists(self) -> bool:
        return self.has_all_rows or self.versions is not None

    def _rows(self, rows: list[list[int]], columns: tuple[str, ...]) -> pa.RecordBatch:
        chosen = rows if self._has_lists else [versions[-1:] for versions in rows]
        ends = np.cumsum([0, *map(len, chosen)])
        flat = pa.array([row for versions in chosen for row in versions], pa.int64())
        arrays = []
        for each in self.schema(columns):
            values = self.table.column(each.name).take(flat).combine_chunks()
            if self._has_lists:
                values = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)
            arrays.append(values.cast(each.type))
        return pa.record_batch(arrays, schema=self.schema(columns))


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
    dimension: FakeDimension
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
        self, dimensions: Mapping[str, FakeDimension], behaviour: Behaviour | None = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self.connection_count = 0
        self.is_down = False
        self._dimensions = dimensions
        self._transports: list[MemoryTransport] = []

    @property
    def names(self) -> list[str]:
        """The names of the dimensions, sorted."""
        return sorted(self._dimensions)

    def connect(self) -> MemoryTransport:
        """A new connection; raises SidecarUnreachable while the sidecar is down."""
        if self.is_down:
            raise SidecarUnreachable(URL, "it is down")
        self.connection_count += 1
        transport = MemoryTransport(self.new_peer())
        self._transports.append(transport)
        return transport

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for any transport."""
        return FakePeer(self._dimensions, self.behaviour, self.memory)

    def crash(self) -> None:
        """Break all connections; open lookups stay unanswered."""
        for transport in self._transports:
            transport.lose("crashed")

    def broadcast(self, frame: Frame) -> None:
        """Send a frame on all connections."""
        for transport in self._transports:
            transport.deliver([encode_frame(frame)])


def _keys(columns: pa.RecordBatch | pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def _failure(opened: frames.Open, code: ErrorCode, detail: str) -> frames.Failure:
    return frames.Failure(opened.channel, code, detail, code.is_retryable)
