"""Arrow messages with any numbers in them: Arrow's own writer writes valid ones only.

Writes the flatbuffers of Arrow's Message.fbs and Schema.fbs.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

V4, V5 = 3, 4  # MetadataVersion
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH, TENSOR = 1, 2, 3, 4  # MessageHeader
LZ4, ZSTD = 0, 1  # CompressionType
LITTLE, BIG = 0, 1  # Endianness
INT, UTF8, DECIMAL, LIST, FIXED_SIZE_BINARY = 2, 5, 7, 12, 15  # Type
CONTINUATION = b"\xff\xff\xff\xff"

_Child = Callable[[bytearray], int]  # appends itself and returns its position
_Slot = tuple[str, int] | _Child  # a scalar in the format of struct, or an offset to a child


@dataclass(frozen=True, slots=True)
class ForgedBatch:
    """A record batch message; the defaults are a valid one of two int64 values, 7 and 8."""

    length: int = 2
    nodes: tuple[tuple[int, int], ...] = ((2, 0),)  # length, null count of each column
    buffers: tuple[tuple[int, int], ...] = ((0, 0), (0, 16))  # offset and size of each
    body: bytes = struct.pack("<qq", 7, 8)
    body_bytes: int | None = None  # declared size; None: the actual one
    codec: int | None = None  # compression since Arrow 1.0
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the message
    version: int = V5
    header: int = RECORD_BATCH

    def message(self) -> bytes:
        """The encapsulated message."""
        return _encapsulated(self._message()) + self.body

    def _message(self) -> _Child:
        declared = len(self.body) if self.body_bytes is None else self.body_bytes
        slots: dict[int, _Slot] = {
            0: ("<h", self.version),
            1: ("<B", self.header),
            2: self._batch(),
            3: ("<q", declared),
        }
        if self.metadata:
            slots[4] = _tables([_pair(*pair) for pair in self.metadata.items()])
        return _table(slots)

    def _batch(self) -> _Child:
        slots: dict[int, _Slot] = {
            0: ("<q", self.length),
            1: _pairs(self.nodes),
            2: _pairs(self.buffers),
        }
        if self.codec is not None:
            slots[3] = _table({0: ("<b", self.codec)})
        return _table(slots)


@dataclass(frozen=True, slots=True)
class ForgedField:
    """A field of a schema; the defaults are a valid int64."""

    name: bytes = b"id"
    kind: int = INT
    numbers: tuple[tuple[str, int], ...] = (("<i", 64), ("<B", 1))  # of the type's table
    children: "tuple[ForgedField, ...]" = ()

    def table(self) -> _Child:
        """Its flatbuffers table."""
        return _table(
            {
                0: _text(self.name),
                1: ("<B", 1),
                2: ("<B", self.kind),
                3: _table(dict(enumerate(self.numbers))),
                5: _tables([child.table() for child in self.children]),
            }
        )


def forged_schema(*fields: ForgedField, endianness: int = LITTLE, version: int = V5) -> bytes:
    """A schema message."""
    header = _table({0: ("<h", endianness), 1: _tables([field.table() for field in fields])})
    return _encapsulated(_table({0: ("<h", version), 1: ("<B", SCHEMA), 2: header}))


def hollow(header: int) -> bytes:
    """A message of this kind with an empty header table."""
    return _encapsulated(_table({0: ("<h", V5), 1: ("<B", header), 2: _table({})}))


def headless(header: int) -> bytes:
    """A message of this kind without a header table."""
    return _encapsulated(_table({0: ("<h", V5), 1: ("<B", header)}))


def forged(batch: pa.RecordBatch) -> ForgedBatch:
    """A valid message of a batch whose columns have a fixed width and no nulls."""
    body, places = bytearray(), []
    for column in batch.columns:
        for buffer in column.buffers():
            content = b"" if buffer is None else buffer.to_pybytes()
            places.append((len(body), len(content)))
            body += content + bytes(-len(content) % 8)
    nodes = tuple((len(column), column.null_count) for column in batch.columns)
    return ForgedBatch(batch.num_rows, nodes, tuple(places), bytes(body))


def _encapsulated(table: _Child) -> bytes:
    metadata = bytearray(4)
    struct.pack_into("<I", metadata, 0, table(metadata))
    metadata += bytes(-len(metadata) % 8)
    return CONTINUATION + struct.pack("<i", len(metadata)) + metadata


def _table(slots: Mapping[int, _Slot]) -> _Child:
    vtable_size = 4 + 2 * (max(slots, default=-1) + 1)

    def write(out: bytearray) -> int:
        vtable = _aligned(out, 8)
        out += bytes(vtable_size)
        at = _aligned(out, 8)
        out += struct.pack("<i", at - vtable)
        places = {slot: _place(out, value) for slot, value in slots.items()}
        struct.pack_into("<HH", out, vtable, vtable_size, len(out) - at)
        for slot, place in places.items():
            struct.pack_into("<H", out, vtable + 4 + 2 * slot, place - at)
        for slot, place in places.items():
            value = slots[slot]
            if callable(value):
                struct.pack_into("<I", out, place, value(out) - place)
        return at

    return write


def _place(out: bytearray, value: _Slot) -> int:
    layout, number = ("<I", 0) if callable(value) else value
    place = _aligned(out, struct.calcsize(layout))
    out += struct.pack(layout, number)
    return place


def _pairs(pairs: tuple[tuple[int, int], ...]) -> _Child:
    def write(out: bytearray) -> int:
        out += bytes((4 - len(out)) % 8)  # the pairs after the count are aligned to 8
        at = len(out)
        out += struct.pack("<I", len(pairs))
        for pair in pairs:
            out += struct.pack("<qq", *pair)
        return at

    return write


def _tables(tables: list[_Child]) -> _Child:
    def write(out: bytearray) -> int:
        at = _aligned(out, 4)
        out += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
        for index, table in enumerate(tables):
            place = at + 4 + 4 * index
            struct.pack_into("<I", out, place, table(out) - place)
        return at

    return write


def _pair(key: str, value: str) -> _Child:
    return _table({0: _text(key.encode()), 1: _text(value.encode())})


def _text(text: bytes) -> _Child:
    def write(out: bytearray) -> int:
        at = _aligned(out, 4)
        out += struct.pack("<I", len(text)) + text + b"\0"
        return at

    return write


def _aligned(out: bytearray, size: int) -> int:
    out += bytes(-len(out) % size)
    return len(out)
