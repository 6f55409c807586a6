"""What a peer sends instead of a frame: it is closed with a reason, and nobody else feels it."""

import json
import struct
from collections.abc import AsyncIterator

import aiohttp
import pyarrow as pa
import pytest

from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch, encode_schema
from lookup_core.protocol.frame_codec import HEADER, encode_frame
from lookup_core.protocol.frames import FrameKind
from tests.service.stream.streaming import (
    Peer,
    Streaming,
    lookup_frame,
    open_frame,
    streaming,
    until,
)
from tools.fuzz import forged_arrow
from tools.fuzz.forged_arrow import ForgedBatch, ForgedField, forged_schema

PROTOCOL_ERROR = aiohttp.WSCloseCode.PROTOCOL_ERROR
LOOKUP_2 = encode_frame(lookup_frame(2, 8))
NO_BATCH = "the payload is not a record batch of the channel's schema"
FLAT = "only flat types may travel"
DICTIONARY = pa.dictionary(pa.int8(), pa.utf8())
TEXTS = pa.record_batch({"id": ["seven", "eight"]})
TWO = pa.record_batch({"id": [7], "more": [8]})


def head(kind: FrameKind, channel: int = 1, *, sequence: int = 0, flags: int = 0) -> bytes:
    """A header."""
    return HEADER.pack(kind, flags, 0, channel, sequence)


def lookup(payload: bytes, *, sequence: int = 2) -> bytes:
    """A LOOKUP with this payload, whatever it is."""
    fixed = struct.pack("<II", 10_000, 0)
    return head(FrameKind.LOOKUP, sequence=sequence) + fixed + payload


def opening(schema: bytes, *, described: bytes | None = None) -> bytes:
    """An OPEN of channel 2 with this schema."""
    words = {"dimension": "customers", "columns": None, "origin": ""}
    text = json.dumps(words, separators=(",", ":")).encode() if described is None else described
    return head(FrameKind.OPEN, 2) + struct.pack("<I", len(text)) + text + schema


def batch(columns: pa.RecordBatch) -> bytes:
    """An Arrow message."""
    return bytes(encode_batch(columns))


SCHEMA = encode_schema(pa.schema({"id": pa.int64()}))
SCHEMA_AT = len(opening(b""))
MALFORMED = {
    # headers
    "empty": (b"", "bad_frame: a frame has at least 16 bytes, this one 0 (at byte 0)"),
    "short": (LOOKUP_2[:15], "bad_frame: a frame has at least 16 bytes, this one 15 (at byte 0)"),
    "kind": (b"\x08" + LOOKUP_2[1:], "bad_frame: unknown frame kind 8 (at byte 0)"),
    "flags": (b"\x03\x02" + LOOKUP_2[2:], "bad_frame: LOOKUP has other flags (at byte 1)"),
    "reserved": (
        LOOKUP_2[:2] + b"\x01" + LOOKUP_2[3:],
        "bad_frame: the reserved field must be 0 (at byte 2)",
    ),
    "no channel": (head(FrameKind.CLOSE, 0), "bad_frame: CLOSE needs a channel (at byte 4)"),
    "other channel": (head(FrameKind.CLOSE, 9) + b"\0", "bad_frame: 0 bytes were expected, not 1"),
    "of the connection": (
        head(FrameKind.GOAWAY, 1),
        "bad_frame: GOAWAY concerns the connection, not a channel (at byte 4)",
    ),
    "sequence": (
        head(FrameKind.CLOSE, sequence=1),
        "bad_frame: CLOSE has no sequence (at byte 8)",
    ),
    "sequence beyond": (
        head(FrameKind.CANCEL, sequence=2**63),
        "bad_frame: the sequence is beyond 2**63 - 1 (at byte 8)",
    ),
    # what follows them
    "truncated": (LOOKUP_2[:20], "bad_frame: 8 bytes were expected, not 4 (at byte 20)"),
    "short watermark": (
        head(FrameKind.WATERMARK) + bytes(7),
        "bad_frame: 8 bytes were expected, not 7 (at byte 23)",
    ),
    "no description": (
        head(FrameKind.OPEN, 2),
        "bad_frame: the frame ends too early (at byte 16)",
    ),
    "long description": (
        head(FrameKind.OPEN, 2) + struct.pack("<I", 2**32 - 1),
        "bad_frame: the description is longer than the frame or its limit (at byte 16)",
    ),
    "no JSON": (
        opening(SCHEMA, described=b"{'dimension'}"),
        "bad_frame: the description is not JSON (at byte 20)",
    ),
    "no dimension": (
        opening(SCHEMA, described=b"{}"),
        "bad_frame: the description's 'dimension' must be a text (at byte 20)",
    ),
    "no schema": (opening(b""), f"bad_frame: an Arrow message was expected (at byte {SCHEMA_AT})"),
    "more than a schema": (
        opening(SCHEMA + b"\0"),
        f"bad_frame: something follows the schema (at byte {SCHEMA_AT})",
    ),
    "nested key": (
        opening(encode_schema(pa.schema({"id": pa.list_(pa.int64())}))),
        f"bad_frame: field 'id' has type list<item: int64>; {FLAT} (at byte {SCHEMA_AT})",
    ),
    "dictionary key": (
        opening(encode_schema(pa.schema({"id": DICTIONARY}))),
        f"bad_frame: field 'id' has type {DICTIONARY}; {FLAT} (at byte {SCHEMA_AT})",
    ),
    "big-endian key": (
        opening(forged_schema(ForgedField(), endianness=forged_arrow.BIG)),
        f"bad_frame: columns are little-endian (at byte {SCHEMA_AT})",
    ),
    # batches
    "no batch": (lookup(b""), "bad_frame: an Arrow message was expected"),
    "garbage": (lookup(b"\xff" * 64), "bad_frame: an Arrow message was expected"),
    "schema": (lookup(SCHEMA), "bad_frame: expected a record batch, got: schema"),
    "other type": (lookup(batch(TEXTS)), f"bad_frame: {NO_BATCH}"),
    "cut": (lookup(batch(TWO)[:-8]), f"bad_frame: {NO_BATCH}"),
    "two batches": (
        lookup(batch(TWO.select(["id"])) * 2),
        "bad_frame: something follows the record batch",
    ),
    "compressed": (
        lookup(ForgedBatch(codec=forged_arrow.ZSTD).message()),
        "bad_frame: compressed buffers are refused",
    ),
    "old compression": (
        lookup(
            ForgedBatch(
                version=forged_arrow.V4, metadata={"ARROW:experimental_compression": "zstd"}
            ).message()
        ),
        "bad_frame: only version 5 of Arrow's metadata is taken",
    ),
    "a terabyte": (lookup(ForgedBatch(body_bytes=2**40).message()), f"bad_frame: {NO_BATCH}"),
    "many rows": (
        lookup(ForgedBatch(2**40, ((2**40, 0),)).message()),
        f"bad_frame: {NO_BATCH}",
    ),
    "negative rows": (lookup(ForgedBatch(-1, ((-1, 0),)).message()), f"bad_frame: {NO_BATCH}"),
    "outside": (
        lookup(ForgedBatch(buffers=((0, 0), (8, 16))).message()),
        f"bad_frame: {NO_BATCH}",
    ),
    # what is a frame, but not now
    "gap": (lookup(batch(TWO.select(["id"])), sequence=3), "seq_gap: expected 2, got 3"),
    "again": (lookup(batch(TWO.select(["id"])), sequence=1), "seq_gap: expected 2, got 1"),
    "last sequence": (
        lookup(batch(TWO.select(["id"])), sequence=2**63 - 1),
        "seq_gap: expected 2, got 9223372036854775807",
    ),
    "unknown channel": (
        encode_frame(lookup_frame(1, 7, channel=9)),
        "unknown_channel: channel 9 is not open",
    ),
    "open already": (encode_frame(open_frame(1)), "bad_frame: channel 1 is open already"),
    "of a service": (
        encode_frame(frames.Closed(1)),
        "bad_frame: a client never sends CLOSED here",
    ),
}


@pytest.fixture
async def service() -> AsyncIterator[Streaming]:
    """A service with the dimension `customers`."""
    async with streaming() as running:
        yield running


@pytest.mark.parametrize(("message", "reason"), MALFORMED.values(), ids=list(MALFORMED))
async def test_malformed_frame_ends_its_connection(
    service: Streaming, message: bytes, reason: str
) -> None:
    """Close 1002 with the reason; lookups, channels and credit are free; nothing was asked."""
    store = service.stores["customers"]
    bystander, peer = await service.peer(), await service.peer()
    store.hold()
    await peer.ask(1, 7)
    asked = await bystander.ask(1, 7)
    await until(lambda: bool(store.batches))

    await peer.socket.send_bytes(message)

    code, told = await peer.closed()
    assert code == PROTOCOL_ERROR
    assert told.startswith(reason[:120])
    await until(lambda: len(service.handler.statistics()) == 1)
    store.release()
    assert await bystander.answer(asked) == {0: "fetched Ada"}
    assert [each.to_pydict() for each in store.batches] == [{"id": [7]}]


@pytest.mark.parametrize(
    "frame", [lookup_frame(2, 8), frames.Watermark(1, 5), frames.Status(1, is_idle=True)]
)
async def test_only_cancel_follows_close(service: Streaming, frame: frames.Frame) -> None:
    """What comes behind CLOSE is refused while the channel's last answers are awaited, too."""
    service.stores["customers"].hold()
    peer = await service.peer()
    await peer.ask(1, 7)
    await peer.send(frames.Close(1), frame)

    kind = type(frame).__name__.upper()
    assert await peer.closed() == (PROTOCOL_ERROR, f"unknown_channel: {kind} after CLOSE on 1")
    await service.wait_until_empty()


async def test_many_broken_peers_leave_nothing(service: Streaming) -> None:
    """Credit and channels of those that break the protocol are there for the next."""
    reasons = set()
    for number in range(3 * len(MALFORMED)):
        peer = await service.peer()
        await peer.ask(1, 7)
        message, _ = list(MALFORMED.values())[number % len(MALFORMED)]
        await peer.socket.send_bytes(message)
        reasons.add(await _ended(peer))

    assert reasons == {PROTOCOL_ERROR}
    await service.wait_until_empty()
    peer = await service.peer()
    assert await peer.answer(await peer.ask(1, 7)) == {0: "hit Ada"}


async def _ended(peer: Peer) -> int | None:
    while (await peer.socket.receive(timeout=5.0)).type is aiohttp.WSMsgType.BINARY:
        pass
    return peer.socket.close_code
