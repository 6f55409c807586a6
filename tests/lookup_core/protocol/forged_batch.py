"""Record-batch messages whose every number can be a lie: Arrow's own writer only tells the truth.

Writes the flatbuffers of Arrow's Message.fbs by hand; whether they are refused is the tests'
business.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

V4, V5 = 3, 4  # MetadataVersion
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH, TENSOR = 1, 2, 3, 4  # MessageHeader
LZ4, ZSTD = 0, 1  # CompressionType
CONTINUATION = b"\xff\xff\xff\xff"

_Child = Callable[[bytearray], int]  # appends itself; returns where it stands
_Slot = tuple[str, int] | _Child  # a scalar as struct writes it, or an offset to a child


@dataclass(frozen=True, slots=True)
class ForgedBatch:
    """A message; its defaults are the truth about two int64 values, 7 and 8."""

    length: int = 2
    nodes: tuple[tuple[int, int], ...] = ((2, 0),)  # length, null count of each column
    buffers: tuple[tuple[int, int], ...] = ((0, 0), (0, 16))  # offset and size of each
    body: bytes = struct.pack("<qq", 7, 8)
    body_bytes: int | None = None  # what is declared; None: what there is
    codec: int | None = None  # compression as Arrow writes it since version 1.0
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the message
    version: int = V5
    header: int = RECORD_BATCH

    def message(self) -> bytes:
        """The encapsulated message."""
        metadata = bytearray(4)
        struct.pack_into("<I", metadata, 0, self._table()(metadata))
        metadata += bytes(-len(metadata) % 8)
        return CONTINUATION + struct.pack("<i", len(metadata)) + metadata + self.body

    def _table(self) -> _Child:
        declared = len(self.body) if self.body_bytes is None else self.body_bytes
        slots: dict[int, _Slot] = {
            0: ("<h", self.version),
            1: ("<B", self.header),
            2: self._batch(),
            3: ("<q", declared),
        }
        if self.metadata:
            pairs = [_table({0: _text(key), 1: _text(self.metadata[key])}) for key in self.metadata]
            slots[4] = _tables(pairs)
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


def forged(batch: pa.RecordBatch) -> ForgedBatch:
    """A batch without nulls and offsets of fixed width columns, as it would be told truly."""
    body, places = bytearray(), []
    for column in batch.columns:
        for buffer in column.buffers():
            content = b"" if buffer is None else buffer.to_pybytes()
            places.append((len(body), len(content)))
            body += content + bytes(-len(content) % 8)
    nodes = tuple((len(column), column.null_count) for column in batch.columns)
    return ForgedBatch(batch.num_rows, nodes, tuple(places), bytes(body))


def _table(slots: Mapping[int, _Slot]) -> _Child:
    def write(out: bytearray) -> int:
        vtable = _aligned(out, 8)
        out += bytes(4 + 2 * (max(slots) + 1))
        at = _aligned(out, 8)
        out += struct.pack("<i", at - vtable)
        places = {slot: _place(out, value) for slot, value in slots.items()}
        struct.pack_into("<HH", out, vtable, 4 + 2 * (max(slots) + 1), len(out) - at)
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
        out += bytes((4 - len(out)) % 8)  # what follows the count is aligned to 8
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


def _text(text: str) -> _Child:
    def write(out: bytearray) -> int:
        at = _aligned(out, 4)
        out += struct.pack("<I", len(text)) + text.encode() + b"\0"
        return at

    return write


def _aligned(out: bytearray, size: int) -> int:
    out += bytes(-len(out) % size)
    return len(out)
