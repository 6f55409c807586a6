"""Structure-aware mutations of frames, determined by a seed.

The results are nearly frames, so that they pass the first checks of the decoders.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from lookup_core.protocol.frame_codec import HEADER
from lookup_core.protocol.frames import FrameKind
from tools.fuzz import forged_arrow
from tools.fuzz.forged_arrow import ForgedBatch, ForgedField, forged_schema

_NUMBERS = (0, 1, 2, 7, 8, 16, 63, 64, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40)
_LARGE = (2**53, 2**62, 2**63 - 8, 2**63 - 1)
_WORDS = (b"null", b"-1", b"[]", b"{}", b'"\\ud800"', b"1e400", b"true", b"9" * 400, b"[" * 2_000)
_OLD_COMPRESSION = {"ARROW:experimental_compression": "zstd"}
_HEADER_AT = 1  # after the byte that selects the schema
_BODY_AT = _HEADER_AT + HEADER.size


def mutated(data: bytes, seed: int) -> bytes:
    """A mutation of an input."""
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_CHANGES)(data, chance)
    return data


def _byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _number(data: bytes, chance: random.Random) -> bytes:
    """Replace an aligned number by one that is probably a bound."""
    layout = chance.choice(("<h", "<i", "<q"))
    size = struct.calcsize(layout)
    if len(data) < _BODY_AT + size:
        return data
    at = _HEADER_AT + chance.randrange((len(data) - _HEADER_AT - size) // 2 + 1) * 2
    number = chance.choice(_NUMBERS + _LARGE) * chance.choice((1, 1, 1, -1))
    packed = (number & (2 ** (8 * size) - 1)).to_bytes(size, "little")
    return data[:at] + packed + data[at + size :]


def _nearby(data: bytes, chance: random.Random) -> bytes:
    """Increase or decrease one number slightly, such as an offset."""
    if len(data) < _BODY_AT + 4:
        return data
    at = _HEADER_AT + chance.randrange((len(data) - _HEADER_AT - 4) // 4 + 1) * 4
    number = int.from_bytes(data[at : at + 4], "little") + chance.choice((-8, -4, -1, 1, 4, 8))
    return data[:at] + (number % 2**32).to_bytes(4, "little") + data[at + 4 :]


def _kind(data: bytes, chance: random.Random) -> bytes:
    """Change the kind of the frame, and keep its body."""
    kind = chance.choice(list(FrameKind))
    channel = 0 if kind in {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY} else 7
    with_sequence = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}
    flags = chance.randrange(4) if kind is FrameKind.RESULT else 0
    header = HEADER.pack(kind, flags, 0, channel, int(kind in with_sequence))
    return data[:_HEADER_AT] + header + data[_BODY_AT:]


def _schema(data: bytes, chance: random.Random) -> bytes:
    return bytes([chance.randrange(256)]) + data[1:]


def _word(data: bytes, chance: random.Random) -> bytes:
    """Replace a JSON value, and adjust the length."""
    length_at = _BODY_AT + 4
    length = int.from_bytes(data[_BODY_AT:length_at], "little")
    text = data[length_at : length_at + length]
    starts = [at + 1 for at, each in enumerate(text) if each in b":,["]
    if not starts or length > len(text):
        return data
    start = chance.choice(starts)
    stops = [at for at, each in enumerate(text) if each in b",]}" and at >= start]
    stop = stops[0] if stops else len(text)
    text = text[:start] + chance.choice(_WORDS) + text[stop:]
    size = struct.pack("<I", len(text))
    return data[:_BODY_AT] + size + text + data[length_at + length :]


def _batch(_: bytes, chance: random.Random) -> bytes:
    """A forged batch in a LOOKUP or a RESULT."""
    count = chance.choice((0, 1, 2, 3, 8, 9, *_NUMBERS, *_LARGE))
    nulls = chance.choice((0, 0, 0, -1, 1, count, count - 1, -(2**63)))
    nodes = ((count, nulls),) * chance.choice((1, 1, 2, 3, 4, 5))
    body = chance.randbytes(8 * chance.randrange(12))
    places = tuple(_place(len(body), chance) for _ in range(chance.choice((2, 3, 5, 8, 12))))
    batch = ForgedBatch(count, nodes, places, body)
    if chance.random() < 0.2:
        batch = _lying(batch, chance)
    return _framed(batch, chance)


def _framed(batch: ForgedBatch, chance: random.Random) -> bytes:
    lookup = HEADER.pack(FrameKind.LOOKUP, 0, 0, 7, 1) + bytes(8)
    result = HEADER.pack(FrameKind.RESULT, chance.randrange(4), 0, 7, 1)
    head = bytes([chance.randrange(256)]) + chance.choice((lookup, result))
    return head + batch.message()


def _shared(_: bytes, chance: random.Random) -> bytes:
    """Columns of zeros that share the same bytes."""
    count, columns = chance.choice((8, 64, 512)), chance.randrange(1, 6)
    body = bytes(count * chance.choice((4, 8, 16, 32)))
    places = ((0, 0), (0, len(body))) * columns
    return _framed(ForgedBatch(count, ((count, 0),) * columns, places, body), chance)


def _inflated(_: bytes, chance: random.Random) -> bytes:
    """Columns that are much larger than the message, by either form of compression."""
    count = chance.choice((8, 1_024, 65_536))
    codec, name = chance.choice(((forged_arrow.ZSTD, "zstd"), (forged_arrow.LZ4, "lz4")))
    content = pa.compress(bytes(8 * count), codec=name, asbytes=True)
    body = struct.pack("<q", 8 * count) + content + bytes(-len(content) % 8)
    columns = chance.randrange(1, 4)
    places = ((0, 0), (0, 8 + len(content))) * columns
    batch = ForgedBatch(count, ((count, 0),) * columns, places, body)
    old = {"ARROW:experimental_compression": name}
    ways = replace(batch, codec=codec), replace(batch, version=forged_arrow.V4, metadata=old)
    return _framed(chance.choice(ways), chance)


def _place(size: int, chance: random.Random) -> tuple[int, int]:
    if chance.random() < 0.1:
        return chance.choice(_NUMBERS + _LARGE), chance.choice(_NUMBERS + _LARGE)
    start = 8 * chance.randrange(size // 8 + 1)
    return start, chance.randrange(size - start + 1)


def _lying(batch: ForgedBatch, chance: random.Random) -> ForgedBatch:
    return chance.choice(
        (
            replace(batch, codec=chance.randrange(3)),
            replace(batch, version=chance.randrange(7)),
            replace(batch, header=chance.randrange(8)),
            replace(batch, body_bytes=chance.choice(_NUMBERS + _LARGE)),
            replace(batch, length=chance.choice(_NUMBERS + _LARGE)),
        )
    )


def _open(_: bytes, chance: random.Random) -> bytes:
    """A forged schema in an OPEN."""
    fields = tuple(_field(chance, depth=0) for _ in range(chance.choice((1, 1, 2, 3))))
    words = b'{"dimension":"d","columns":null,"origin":""}'
    head = HEADER.pack(FrameKind.OPEN, 0, 0, 7, 0) + struct.pack("<I", len(words)) + words
    endianness = chance.choice((0, 0, 0, 0, 1))
    return b"\0" + head + forged_schema(*fields, endianness=endianness)


def _field(chance: random.Random, *, depth: int) -> ForgedField:
    numbers = tuple(
        (chance.choice(("<B", "<h", "<i", "<i")), chance.choice((0, 1, 2, 5, 8, 16, 32, 64, 100)))
        for _ in range(chance.randrange(4))
    )
    children: tuple[ForgedField, ...] = ()
    if depth < 3 and chance.random() < 0.3:
        children = tuple(_field(chance, depth=depth + 1) for _ in range(chance.randrange(3)))
    name = chance.choice((b"id", b"at", b"", b"\xff", b"a\0b"))
    return ForgedField(name, chance.randrange(28), numbers, children)


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_byte, _number, _number, _nearby, _nearby, _kind, _schema, _word),
    *(_batch, _batch, _shared, _inflated, _open),
)
