"""Frames to bytes and back: a fixed little-endian header, then what the kind needs.

    offset  size  field
         0     1  kind
         1     1  flags      RESULT: 1 = last, 2 = has rows; STATUS: 1 = idle; otherwise 0
         2     2  reserved   0
         4     4  channel    0 = the connection
         8     8  sequence   LOOKUP, RESULT, CANCEL: below 2**63; otherwise 0

Decoding never trusts the peer: whatever is wrong is a ProtocolViolation, before any state changes.
Not here: Arrow payloads stay bytes, because only the channel knows their schema.
"""

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, assert_never

import pyarrow as pa

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from lookup_core.protocol.frame_description import (
    FrameDescription,
    decode_description,
    encode_description,
)
from lookup_core.protocol.frames import Frame, FrameKind

HEADER = struct.Struct("<BBHIQ")
_LOOKUP = struct.Struct("<II")
_WATERMARK = struct.Struct("<q")
_CREDIT = struct.Struct("<IQ")
_NOTHING = struct.Struct("")

# Signed where a language has no unsigned numbers. At a million lookups a second it would last for
# 290,000 years, so that nothing has to be said about what follows the last one.
_MAX_SEQUENCE = 2**63 - 1
_LAST = 1
_HAS_ROWS = 2
_IDLE = 1
_FLAGS = {FrameKind.RESULT: _LAST | _HAS_ROWS, FrameKind.STATUS: _IDLE}
_WITH_SEQUENCE = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}
_OF_CONNECTION = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
_OF_EITHER = {FrameKind.ERROR}

_Described = (
    frames.Hello | frames.Welcome | frames.Open | frames.Opened | frames.Failure | frames.Goaway
)
_Fixed = (
    frames.Credit | frames.Watermark | frames.Status | frames.Cancel | frames.Close | frames.Closed
)


class _Header(NamedTuple):
    kind: int
    flags: int
    reserved: int
    channel: int
    sequence: int


def encode_frame(frame: Frame) -> bytes:
    """The bytes of one WebSocket message."""
    match frame:
        case frames.Lookup():
            head = _head(FrameKind.LOOKUP, frame.channel, sequence=frame.sequence)
            fixed = _LOOKUP.pack(frame.timeout_ms, frame.backlog_records)
            return b"".join((head, fixed, frame.payload))
        case frames.Result():
            flags = _LAST * frame.is_last | _HAS_ROWS * frame.has_rows
            head = _head(FrameKind.RESULT, frame.channel, sequence=frame.sequence, flags=flags)
            return b"".join((head, frame.payload))
        case _ if isinstance(frame, _Described):
            return _encode_described(frame)
        case _:
            return _encode_fixed(frame)


def decode_frame(message: bytes) -> Frame:
    """The frame in one WebSocket message.

    Raises ProtocolViolation (`bad_frame`, with the byte offset) for anything else than a frame.
    """
    if len(message) < HEADER.size:
        raise _bad(f"a frame has at least {HEADER.size} bytes, this one {len(message)}", 0)
    header = _Header._make(HEADER.unpack_from(message))
    if header.kind not in _DECODERS:
        raise _bad(f"unknown frame kind {header.kind}", 0)
    kind = FrameKind(header.kind)
    _check(header, kind)
    return _DECODERS[kind](header, memoryview(message)[HEADER.size :])


def _check(header: _Header, kind: FrameKind) -> None:
    if header.flags & ~_FLAGS.get(kind, 0):
        raise _bad(f"{kind.name} has other flags", 1)
    if header.reserved:
        raise _bad("the reserved field must be 0", 2)
    if header.channel == frames.CONNECTION:
        if kind not in _OF_CONNECTION | _OF_EITHER:
            raise _bad(f"{kind.name} needs a channel", 4)
    elif kind in _OF_CONNECTION:
        raise _bad(f"{kind.name} concerns the connection, not a channel", 4)
    if header.sequence and kind not in _WITH_SEQUENCE:
        raise _bad(f"{kind.name} has no sequence", 8)
    if header.sequence > _MAX_SEQUENCE:
        raise _bad("the sequence is beyond 2**63 - 1", 8)


def _head(kind: FrameKind, channel: int, *, sequence: int = 0, flags: int = 0) -> bytes:
    return HEADER.pack(kind, flags, 0, channel, sequence)


def _encode_fixed(frame: _Fixed) -> bytes:
    match frame:
        case frames.Credit():
            return _head(FrameKind.CREDIT, frame.channel) + _CREDIT.pack(frame.records, frame.bytes)
        case frames.Watermark():
            return _head(FrameKind.WATERMARK, frame.channel) + _WATERMARK.pack(frame.watermark_ms)
        case frames.Status():
            return _head(FrameKind.STATUS, frame.channel, flags=_IDLE * frame.is_idle)
        case frames.Cancel():
            return _head(FrameKind.CANCEL, frame.channel, sequence=frame.sequence)
        case frames.Close():
            return _head(FrameKind.CLOSE, frame.channel)
        case frames.Closed():
            return _head(FrameKind.CLOSED, frame.channel)
        case _:
            assert_never(frame)


def _encode_described(frame: _Described) -> bytes:
    match frame:
        case frames.Hello():
            words: dict[str, object] = {"versions": list(frame.versions), "agent": frame.agent}
            return _described(_head(FrameKind.HELLO, frames.CONNECTION), words)
        case frames.Welcome():
            words = {"version": frame.version, "agent": frame.agent}
            return _described(_head(FrameKind.WELCOME, frames.CONNECTION), words)
        case frames.Open():
            columns = None if frame.columns is None else list(frame.columns)
            words = {"dimension": frame.dimension, "columns": columns, "origin": frame.origin}
            return _described(_head(FrameKind.OPEN, frame.channel), words, schema=frame.key)
        case frames.Opened():
            words = {
                "credit_records": frame.credit_records,
                "credit_bytes": frame.credit_bytes,
                "key": list(frame.key),
            }
            return _described(_head(FrameKind.OPENED, frame.channel), words, schema=frame.columns)
        case frames.Failure():
            words = {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
            return _described(_head(FrameKind.ERROR, frame.channel), words)
        case frames.Goaway():
            return _described(_head(FrameKind.GOAWAY, frames.CONNECTION), {"reason": frame.reason})
        case _:
            assert_never(frame)


def _described(
    head: bytes, words: Mapping[str, object], *, schema: pa.Schema | None = None
) -> bytes:
    tail = b"" if schema is None else encode_schema(schema)
    return b"".join((head, encode_description(words), tail))


def _decode_lookup(header: _Header, body: memoryview) -> frames.Lookup:
    timeout_ms, backlog_records = _unpack(_LOOKUP, body[: _LOOKUP.size])
    return frames.Lookup(
        channel=header.channel,
        sequence=header.sequence,
        timeout_ms=timeout_ms,
        backlog_records=backlog_records,
        payload=body[_LOOKUP.size :],
    )


def _decode_result(header: _Header, body: memoryview) -> frames.Result:
    return frames.Result(
        channel=header.channel,
        sequence=header.sequence,
        is_last=bool(header.flags & _LAST),
        has_rows=bool(header.flags & _HAS_ROWS),
        payload=body,
    )


def _decode_credit(header: _Header, body: memoryview) -> frames.Credit:
    records, size = _unpack(_CREDIT, body)
    return frames.Credit(header.channel, records, size)


def _decode_watermark(header: _Header, body: memoryview) -> frames.Watermark:
    (watermark_ms,) = _unpack(_WATERMARK, body)
    return frames.Watermark(header.channel, watermark_ms)


def _decode_status(header: _Header, body: memoryview) -> frames.Status:
    _unpack(_NOTHING, body)
    return frames.Status(header.channel, is_idle=bool(header.flags & _IDLE))


def _decode_cancel(header: _Header, body: memoryview) -> frames.Cancel:
    _unpack(_NOTHING, body)
    return frames.Cancel(header.channel, header.sequence)


def _decode_close(header: _Header, body: memoryview) -> frames.Close:
    _unpack(_NOTHING, body)
    return frames.Close(header.channel)


def _decode_closed(header: _Header, body: memoryview) -> frames.Closed:
    _unpack(_NOTHING, body)
    return frames.Closed(header.channel)


def _decode_hello(_: _Header, body: memoryview) -> frames.Hello:
    words = _description(body)
    return frames.Hello(words.counts("versions"), words.text("agent"))


def _decode_welcome(_: _Header, body: memoryview) -> frames.Welcome:
    words = _description(body)
    return frames.Welcome(words.count("version"), words.text("agent"))


def _decode_open(header: _Header, body: memoryview) -> frames.Open:
    words = decode_description(body, offset=HEADER.size)
    return frames.Open(
        channel=header.channel,
        dimension=words.text("dimension"),
        columns=words.texts_or_none("columns"),
        origin=words.text("origin"),
        key=decode_schema(words.rest, offset=words.rest_offset),
    )


def _decode_opened(header: _Header, body: memoryview) -> frames.Opened:
    words = decode_description(body, offset=HEADER.size)
    return frames.Opened(
        channel=header.channel,
        credit_records=words.count("credit_records"),
        credit_bytes=words.count("credit_bytes"),
        columns=decode_schema(words.rest, offset=words.rest_offset, may_have_lists=True),
        key=words.texts("key"),
    )


def _decode_failure(header: _Header, body: memoryview) -> frames.Failure:
    words = _description(body)
    return frames.Failure(
        channel=header.channel,
        code=words.text("code"),
        detail=words.text("detail"),
        is_retryable=words.truth("retryable"),
    )


def _decode_goaway(_: _Header, body: memoryview) -> frames.Goaway:
    return frames.Goaway(_description(body).text("reason"))


_DECODERS: dict[int, Callable[[_Header, memoryview], Frame]] = {
    FrameKind.HELLO: _decode_hello,
    FrameKind.WELCOME: _decode_welcome,
    FrameKind.OPEN: _decode_open,
    FrameKind.OPENED: _decode_opened,
    FrameKind.LOOKUP: _decode_lookup,
    FrameKind.RESULT: _decode_result,
    FrameKind.CREDIT: _decode_credit,
    FrameKind.WATERMARK: _decode_watermark,
    FrameKind.STATUS: _decode_status,
    FrameKind.CANCEL: _decode_cancel,
    FrameKind.CLOSE: _decode_close,
    FrameKind.CLOSED: _decode_closed,
    FrameKind.ERROR: _decode_failure,
    FrameKind.GOAWAY: _decode_goaway,
}


def _unpack(layout: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != layout.size:
        shorter = min(len(body), layout.size)
        raise _bad(f"{layout.size} bytes were expected, not {len(body)}", HEADER.size + shorter)
    return layout.unpack(body)


def _description(body: memoryview) -> FrameDescription:
    words = decode_description(body, offset=HEADER.size)
    if words.rest:
        raise _bad("something follows the description", words.rest_offset)
    return words


def _bad(detail: str, offset: int) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
