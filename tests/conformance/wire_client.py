"""A client of `sidelook.v1` written from docs/reference/wire-protocol.md alone.

Imports nothing of ours, so that nothing of ours can be wrong on both sides. It reads and writes
whole messages, does not reconnect, and stays within its credit.
"""

import base64
import json
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

HEADER = struct.Struct("<BBHIQ")  # kind, flags, reserved, channel, sequence
HELLO, OPEN, LOOKUP, WATERMARK, STATUS, CANCEL, CLOSE = range(1, 8)
WELCOME, OPENED, CREDIT, RESULT, ERROR, CLOSED, GOAWAY = range(65, 72)
LAST, HAS_ROWS = 1, 2  # flags of RESULT
HAS_EVENT_TIME = 1  # of LOOKUP
WITH_ROW = {"hit", "fetched", "stale", "default"}
OUTCOMES = ("hit", "fetched", "missing", "stale", "default", "timeout", "error")

Description = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Received:
    """A frame of the service, read as far as its kind says."""

    kind: int
    flags: int
    channel: int
    sequence: int
    body: bytes

    def description(self) -> tuple[Description, bytes]:
        """Its description, and what follows it."""
        (length,) = struct.unpack_from("<I", self.body)
        return json.loads(self.body[4 : 4 + length].decode()), self.body[4 + length :]


@dataclass(slots=True)
class Channel:
    """What the client knows of a channel."""

    key: pa.Schema
    columns: pa.Schema
    credit_records: int
    credit_bytes: int
    key_names: list[str]
    versions: tuple[str | None, str | None] = (None, None)  # valid from, valid to
    waits: bool = False  # for changes up to the time of a lookup
    all_rows: bool = False  # columns are lists
    default: pa.RecordBatch | None = None
    sequence: int = 0
    answers: dict[int, list[str]] = field(default_factory=dict)  # {sequence: by position}


@dataclass(slots=True)
class WireClient:
    """One connection; `send` and `receive` carry one binary message each."""

    send: Callable[[bytes], Awaitable[None]]
    receive: Callable[[], Awaitable[bytes]]
    channels: dict[int, Channel] = field(default_factory=dict)

    async def greet(self) -> Description:
        """HELLO; what WELCOME says."""
        words = {"versions": [1], "agent": "wire-client/1"}
        await self.send(HEADER.pack(HELLO, 0, 0, 0, 0) + _described(words))
        welcome, rest = (await self._next(WELCOME)).description()
        assert (welcome["version"], rest) == (1, b"")
        return welcome

    async def open(
        self,
        number: int,
        dimension: str,
        key: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        as_of: bool = False,
        default: bool = False,
    ) -> Channel | Description:
        """OPEN; the channel, or why it was refused."""
        words = {
            "dimension": dimension,
            "columns": columns,
            "origin": "a conformance test",
            "as_of": as_of,
            "default": default,
        }
        head = HEADER.pack(OPEN, 0, 0, number, 0)
        await self.send(head + _described(words) + key.serialize().to_pybytes())
        frame = await self._next(OPENED, ERROR)
        assert frame.channel == number
        found, rest = frame.description()
        if frame.kind == ERROR:
            assert rest == b""
            return found
        columns_schema = pa.ipc.read_schema(pa.BufferReader(rest))
        credit = found["credit_records"], found["credit_bytes"]
        versions = found.get("valid_from"), found.get("valid_to")
        waits = found.get("waits", False)
        channel = Channel(key, columns_schema, *credit, found["key"], versions, waits)
        channel.all_rows = found.get("all_rows", False)
        if found.get("default") is not None:
            message = pa.py_buffer(base64.b64decode(found["default"]))
            channel.default = pa.ipc.read_record_batch(message, columns_schema)
        self.channels[number] = channel
        return channel

    async def look_up(
        self, number: int, keys: pa.RecordBatch, *, event_time_ms: int | None = None
    ) -> list[str]:
        """Look up the keys, in parts within the credit; outcome and row of each key."""
        answers: list[str] = []
        while len(answers) < keys.num_rows:
            part = await self._part_within_credit(number, keys.slice(len(answers)))
            backlog = keys.num_rows - len(answers) - part.num_rows
            answers += await self._ask(number, part, backlog, event_time_ms=event_time_ms)
        return answers

    async def mark(self, number: int, watermark_ms: int) -> None:
        """WATERMARK."""
        await self.send(HEADER.pack(WATERMARK, 0, 0, number, 0) + struct.pack("<q", watermark_ms))

    async def rest(self, number: int) -> None:
        """STATUS: idle."""
        await self.send(HEADER.pack(STATUS, 1, 0, number, 0))

    async def cancel(self, number: int, sequence: int) -> None:
        """CANCEL."""
        await self.send(HEADER.pack(CANCEL, 0, 0, number, sequence))

    async def close(self, number: int) -> None:
        """CLOSE, and all that comes up to CLOSED."""
        await self.send(HEADER.pack(CLOSE, 0, 0, number, 0))
        assert (await self._next(CLOSED)).channel == number
        del self.channels[number]

    async def _part_within_credit(self, number: int, keys: pa.RecordBatch) -> pa.RecordBatch:
        channel = self.channels[number]
        while True:
            part = keys.slice(0, channel.credit_records)
            while part.num_rows and len(_batch(part)) > channel.credit_bytes:
                part = part.slice(0, part.num_rows // 2)
            if part.num_rows:
                return part
            await self._take(await self._frame())

    async def _ask(
        self, number: int, keys: pa.RecordBatch, backlog: int, *, event_time_ms: int | None
    ) -> list[str]:
        channel = self.channels[number]
        payload = _batch(keys)
        channel.sequence += 1
        channel.credit_records -= keys.num_rows
        channel.credit_bytes -= len(payload)
        channel.answers[channel.sequence] = [""] * keys.num_rows
        has_time = event_time_ms is not None
        head = HEADER.pack(LOOKUP, HAS_EVENT_TIME * has_time, 0, number, channel.sequence)
        time = struct.pack("<q", event_time_ms) if has_time else b""
        await self.send(head + struct.pack("<II", 10_000, backlog) + time + payload)
        while True:
            frame = await self._frame()
            await self._take(frame)
            if frame.kind == RESULT and frame.flags & LAST and frame.sequence == channel.sequence:
                answers = channel.answers.pop(channel.sequence)
                assert all(answers), "every position is answered"
                return answers

    async def _next(self, *kinds: int) -> Received:
        while True:
            frame = await self._frame()
            if frame.kind in kinds:
                return frame
            await self._take(frame)

    async def _take(self, frame: Received) -> None:
        channel = self.channels.get(frame.channel)
        assert frame.kind in {CREDIT, RESULT}, frame
        if channel is None:
            return
        if frame.kind == CREDIT:
            records, size = struct.unpack("<IQ", frame.body)
            channel.credit_records += records
            channel.credit_bytes += size
        elif frame.sequence in channel.answers:
            _note(frame, channel)

    async def _frame(self) -> Received:
        message = await self.receive()
        kind, flags, reserved, channel, sequence = HEADER.unpack_from(message)
        assert reserved == 0
        return Received(kind, flags, channel, sequence, message[HEADER.size :])


def _note(frame: Received, channel: Channel) -> None:
    meta = [("position", pa.int32()), ("outcome", pa.uint8()), ("age_ms", pa.uint32())]
    has_rows = bool(frame.flags & HAS_ROWS)
    fields = [pa.field(*each) for each in meta]
    fields += list(channel.columns) if has_rows else [pa.field("error", pa.utf8())]
    message = pa.ipc.read_message(pa.BufferReader(frame.body))
    batch = pa.ipc.read_record_batch(message, pa.schema(fields))
    batch.validate(full=True)
    answers = channel.answers[frame.sequence]
    for position, outcome, _, *rest in zip(*(each.to_pylist() for each in batch), strict=True):
        assert answers[position] == "", "each position is named once"
        assert (OUTCOMES[outcome] in WITH_ROW) == has_rows
        words = [str(each) for each in rest if each is not None]
        answers[position] = " ".join([OUTCOMES[outcome], *words])


def _batch(keys: pa.RecordBatch) -> bytes:
    return bytes(keys.serialize().to_pybytes())


def _described(words: Description) -> bytes:
    text = json.dumps(words).encode()
    return struct.pack("<I", len(text)) + text
