"""Protocol violations: the connection is closed with a reason, others are not affected."""

import json
import struct
import zlib

import aiohttp
import pyarrow as pa
import pytest
from aiohttp import WSCloseCode
from structlog.testing import capture_logs

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch, encode_schema
from lookup_core.protocol.frame_codec import HEADER, encode_frame
from lookup_core.protocol.frames import Frame, FrameKind
from service.stream.connection import ConnectionEnded, connection_end
from tests.fuzz.forged_arrow import ForgedBatch
from tests.service.stream.streaming import (
    AGENT,
    Peer,
    Setting,
    Streaming,
    lookup_frame,
    open_frame,
    until,
)

in_shared_service = pytest.mark.asyncio(loop_scope="module")

NO_BATCH = "bad_frame: the payload is not a record batch of the channel's schema"
OTHER_COLUMNS = "bad_frame: the payload's columns do not match the channel's schema: 1 in 3"
NO_MESSAGE = "bad_frame: an Arrow message was expected"
FLAT = "only flat types are allowed"
HELLO = frames.Hello((1,), "again")
TWO = pa.record_batch({"id": [7], "more": [8]})
ONE = TWO.select(["id"])


def head(kind: FrameKind, channel: int = 1, *, sequence: int = 0, flags: int = 0) -> bytes:
    """A header."""
    return HEADER.pack(kind, flags, 0, channel, sequence)


def lookup(payload: bytes, *, sequence: int = 2) -> bytes:
    """A LOOKUP with this payload."""
    fixed = struct.pack("<II", 10_000, 0)
    return head(FrameKind.LOOKUP, sequence=sequence) + fixed + payload


def opening(schema: bytes, described: bytes | None = None) -> bytes:
    """An OPEN of channel 2 with this schema."""
    words = {"dimension": "customers", "columns": None, "origin": ""}
    text = json.dumps(words, separators=(",", ":")).encode() if described is None else described
    return head(FrameKind.OPEN, 2) + struct.pack("<I", len(text)) + text + schema


def batch(columns: pa.RecordBatch) -> bytes:
    """An Arrow message."""
    return bytes(encode_batch(columns))


SCHEMA = encode_schema(pa.schema({"id": pa.int64()}))
NESTED = encode_schema(pa.schema({"id": pa.list_(pa.int64())}))
WILD_SLOTS = struct.pack("<3i", -(2**31), 0, 2**31 - 1)
CACHED = encode_frame(frames.Cached(1, 5, 6, 7, WILD_SLOTS))
NOT_OPEN = "unknown_channel: channel 9 is not open"
# {what: (a message after HELLO, OPEN 1 and LOOKUP 1, the reason of the close)}
VIOLATIONS = {
    "empty": (b"", "bad_frame: a frame has at least 16 bytes, this one has 0 (at byte 0)"),
    "no JSON": (opening(SCHEMA, b"{'dim'}"), "bad_frame: the description is not JSON (at byte 20)"),
    "nested key": (opening(NESTED), f"bad_frame: field 'id' has type list<item: int64>; {FLAT}"),
    "no batch": (lookup(b""), NO_MESSAGE),
    "other type": (lookup(batch(pa.record_batch({"id": ["seven"]}))), OTHER_COLUMNS),
    "a terabyte": (lookup(ForgedBatch(body_bytes=2**40).message()), NO_BATCH),
    "gap": (lookup(batch(ONE), sequence=3), "seq_gap: expected 2, got 3"),
    "credit": (
        encode_frame(lookup_frame(2, *range(20_001))),
        "credit_violation: 20001 records",
    ),
    "cached: huge counts": (
        head(FrameKind.CACHED) + b"\xff" * 24,
        f"bad_frame: CACHED reports more than {2**40} keys (at byte 16)",
    ),
    "unknown channel": (encode_frame(lookup_frame(1, 7, channel=9)), NOT_OPEN),
    "open already": (encode_frame(open_frame(1)), "bad_frame: channel 1 is already open"),
    "HELLO again": (encode_frame(HELLO), "bad_frame: a client never sends HELLO here"),
    "of a service": (encode_frame(frames.Closed(1)), "bad_frame: a client never sends CLOSED here"),
}


@in_shared_service
@pytest.mark.parametrize(("message", "reason"), VIOLATIONS.values(), ids=list(VIOLATIONS))
async def test_violation_ends_its_connection_only(
    service: Streaming, message: bytes, reason: str
) -> None:
    """Close 1002 names the fault; the lookups and channels of the connection are freed."""
    bystander, peer = await service.peer(), await service.peer()
    service.customers.hold()
    await peer.look_up(1, 7)
    sent = await bystander.look_up(1, 7)
    await until(
        lambda: sum(c.in_flight_records for c in service.handler.registry.statistics()) == 2
    )

    await peer.socket.send_bytes(message)

    code, shown = await peer.closed()
    assert (code, shown[: len(reason)]) == (WSCloseCode.PROTOCOL_ERROR, reason[:120])
    await until(lambda: len(service.handler.registry.statistics()) == 1)
    service.customers.release()
    assert await bystander.answer(sent) == {0: "fetched Ada"}
    assert [each.to_pydict() for each in service.customers.batches] == [{"id": [7]}]


@in_shared_service
async def test_reader_spoils_statistics_only(service: Streaming, peer: Peer) -> None:
    """Any counts and slots of a reader change totals; rows and other channels stay as they are."""
    assert await peer.answers(7) == [{0: "fetched Ada"}]
    before = service.dimensions["customers"].statistics()

    of_closed = frames.Cached(9, 5, 6, 7, WILD_SLOTS)  # its report may come after its end
    await peer.send(frames.Cached(1, 5, 6, 7, WILD_SLOTS), of_closed)

    assert await peer.answer(await peer.look_up(2, 7)) == {0: "hit Ada"}
    after = service.dimensions["customers"].statistics()
    assert after.shared.keys - before.shared.keys == 5 + 6 + 7
    assert after.cache == before.cache


@in_shared_service
@pytest.mark.parametrize("dimension", ["customers", "orders"])
async def test_channel_is_opened_once(service: Streaming, dimension: str) -> None:
    """A channel that is open, or about to be, cannot be opened again."""
    peer = await service.greeted()

    await peer.send(open_frame(1, dimension), open_frame(1, dimension))

    _, message = await peer.read_to_the_end()  # OPENED may have been first
    assert message.extra == "bad_frame: channel 1 is already open"


@in_shared_service
@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (open_frame(), "bad_frame: the first frame must be HELLO"),
        (lookup_frame(1, 7), "bad_frame: the first frame must be HELLO"),
        (
            frames.Hello((2, 3), "client/9"),
            f"unsupported_version: this service ({AGENT}) speaks 1, the client (client/9) [2, 3]",
        ),
    ],
)
async def test_first_frame_must_be_a_known_hello(
    service: Streaming, frame: Frame, reason: str
) -> None:
    """A connection begins with HELLO; another version is refused with those of both sides."""
    peer = await service.connect()

    await peer.send(frame)

    assert await peer.closed() == (WSCloseCode.PROTOCOL_ERROR, reason)


# WebSocket messages, byte by byte: no client library sends them

TEXT, BINARY, RESERVED = 1, 2, 3
MASK = b"\1\2\3\4"
LIMIT_BYTES = Setting().max_message_bytes


def raw(opcode: int, content: bytes, *, first_bits: int = 0x80, is_masked: bool = True) -> bytes:
    """A WebSocket frame."""
    body = bytes(each ^ MASK[at % 4] for at, each in enumerate(content)) if is_masked else content
    mask = MASK if is_masked else b""
    return raw_head(opcode, len(content), first_bits=first_bits, is_masked=is_masked) + mask + body


def raw_head(opcode: int, size: int, *, first_bits: int = 0x80, is_masked: bool = True) -> bytes:
    """The first bytes of one, with the size in eight bytes or in one."""
    masked = 0x80 if is_masked else 0
    if size < 126:
        return bytes([first_bits | opcode, masked | size])
    return bytes([first_bits | opcode, masked | 127]) + struct.pack(">Q", size)


@in_shared_service
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (raw(TEXT, b"\xff\xfe"), WSCloseCode.INVALID_TEXT),
        (raw(RESERVED, b"?"), WSCloseCode.PROTOCOL_ERROR),
        (raw(TEXT, b"hello"), WSCloseCode.PROTOCOL_ERROR),
        (raw(BINARY, zlib.compress(bytes(999)), first_bits=0xC0), WSCloseCode.PROTOCOL_ERROR),
        (raw(0, b"of nothing"), WSCloseCode.PROTOCOL_ERROR),
        (raw(9, bytes(126)), WSCloseCode.PROTOCOL_ERROR),
        (raw_head(BINARY, LIMIT_BYTES + 1) + MASK, WSCloseCode.MESSAGE_TOO_BIG),
        (raw_head(BINARY, 2**40) + MASK, WSCloseCode.MESSAGE_TOO_BIG),
    ],
    ids=["bad text", "opcode", "text", "deflated", "no start", "long ping", "large", "terabyte"],
)
async def test_broken_message_ends_its_connection(
    service: Streaming, peer: Peer, sent: bytes, code: int
) -> None:
    """The close has the code of RFC 6455; a large message is refused before its bytes arrive."""
    bystander = await service.peer()

    peer.write(sent)

    message = await peer.socket.receive(timeout=5.0)
    assert (message.type, peer.socket.close_code) == (aiohttp.WSMsgType.CLOSE, code)
    assert await bystander.answers(7) == [{0: "fetched Ada"}]


@in_shared_service
async def test_unmasked_frame_is_accepted(peer: Peer) -> None:
    """Masks defend proxies against browsers; no browser reaches this service."""
    sent = lookup_frame(1, 7)

    peer.write(raw(BINARY, encode_frame(sent), is_masked=False))

    assert await peer.answer(sent) == {0: "fetched Ada"}


@in_shared_service
async def test_fragments_make_one_frame(peer: Peer) -> None:
    """A frame may come in fragments, also of a single byte."""
    sent = lookup_frame(1, 7)
    message = encode_frame(sent)

    for at, each in enumerate(message):
        last = 0x80 if at == len(message) - 1 else 0
        peer.write(raw(0 if at else BINARY, bytes([each]), first_bits=last))

    assert await peer.answer(sent) == {0: "fetched Ada"}


# The end of a connection

VIOLATION = ProtocolViolation(ErrorCode.CREDIT_VIOLATION, "9 records on channel 1")
DEFECT = ZeroDivisionError()


@pytest.mark.parametrize(
    ("error", "end", "logged"),
    [
        (ConnectionEnded(WSCloseCode.GOING_AWAY, "draining"), (1001, "draining"), {}),
        (
            VIOLATION,
            (1002, "credit_violation: 9 records on channel 1"),
            {"event": "stream.protocol_violation", "log_level": "warning", "code": VIOLATION.code},
        ),
        (TimeoutError(), (1013, "the peer reads nothing"), {}),
        (ConnectionResetError(), (1000, ""), {}),
        (
            DEFECT,
            (1011, "internal error of the service"),
            {"event": "stream.internal_error", "log_level": "error", "exc_info": DEFECT},
        ),
    ],
)
def test_each_error_has_its_close_code(
    error: Exception, end: tuple[int, str], logged: dict[str, object]
) -> None:
    """Violations are named and logged as warnings; defects are logged only."""
    with capture_logs() as logs:
        found = connection_end(error, 3)

    assert (found.code, found.reason) == end
    assert [line.items() >= {"connection": 3, **logged}.items() for line in logs] == (
        [True] if logged else []
    )


@pytest.mark.parametrize("before", ["", "x"])
def test_long_reason_is_cut_between_characters(before: str) -> None:
    """The reason of a close frame has at most 120 bytes of whole characters."""
    end = ConnectionEnded(WSCloseCode.OK, before + "é" * 100)

    assert end.message == (before + "é" * (60 - len(before))).encode()
