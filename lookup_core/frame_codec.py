"""Frames to bytes and back: a fixed little-endian header, then what the kind needs.

    offset  size  field
         0     1  kind
         1     1  flags      RESULT: 1 = last, 2 = has rows; STATUS: 1 = idle; otherwise 0
         2     2  reserved   0
         4     4  channel    0 = the connection
         8     8  sequence   LOOKUP, RESULT, CANCEL; otherwise 0

Decoding never trusts the peer: whatever is wrong is a ProtocolViolation, before any state changes.
Not here: Arrow payloads stay bytes, because only the channel knows their schema.
"""

import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from lookup_core import frames
from lookup_core.arrow_payload import decode_schema, encode_schema
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.frames import Frame, FrameKind

HEADER = struct.Struct("<BBHIQ")
_LOOKUP = struct.Struct("<II")
_WATERMARK = struct.Struct("<q")
_CREDIT = struct.Struct("<IQ")
_LENGTH = struct.Struct("<I")

_LAST = 1
_HAS_ROWS = 2
_IDLE = 1
MAX_JSON_BYTES = 64 * 1024

_T = TypeVar("_T")


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
        case (
            frames.Hello()
            | frames.Welcome()
            | frames.Open()
            | frames.Opened()
            | frames.Failure()
            | frames.Goaway()
        ):
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
    decode = _DECODERS.get(header.kind)
    if decode is None:
        raise _bad(f"unknown frame kind {header.kind}", 0)
    if header.reserved:
        raise _bad("the reserved field must be 0", 2)
    return decode(header, memoryview(message)[HEADER.size :])


def _head(kind: FrameKind, channel: int, *, sequence: int = 0, flags: int = 0) -> bytes:
    return HEADER.pack(kind, flags, 0, channel, sequence)


def _encode_fixed(
    frame: frames.Credit
    | frames.Watermark
    | frames.Status
    | frames.Cancel
    | frames.Close
    | frames.Closed,
) -> bytes:
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


def _encode_described(
    frame: frames.Hello
    | frames.Welcome
    | frames.Open
    | frames.Opened
    | frames.Failure
    | frames.Goaway,
) -> bytes:
    match frame:
        case frames.Hello():
            words: dict[str, Any] = {"versions": list(frame.versions), "agent": frame.agent}
            return _described(_head(FrameKind.HELLO, frames.CONNECTION), words)
        case frames.Welcome():
            words = {"version": frame.version, "agent": frame.agent}
            return _described(_head(FrameKind.WELCOME, frames.CONNECTION), words)
        case frames.Open():
            columns = None if frame.columns is None else list(frame.columns)
            words = {"dimension": frame.dimension, "columns": columns, "origin": frame.origin}
            return _described(_head(FrameKind.OPEN, frame.channel), words, schema=frame.key)
        case frames.Opened():
            words = {"credit_records": frame.credit_records, "credit_bytes": frame.credit_bytes}
            return _described(_head(FrameKind.OPENED, frame.channel), words, schema=frame.columns)
        case frames.Failure():
            words = {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
            return _described(_head(FrameKind.ERROR, frame.channel), words)
        case frames.Goaway():
            return _described(_head(FrameKind.GOAWAY, frames.CONNECTION), {"reason": frame.reason})


def _described(head: bytes, words: dict[str, Any], *, schema: pa.Schema | None = None) -> bytes:
    text = json.dumps(words, separators=(",", ":")).encode()
    tail = b"" if schema is None else encode_schema(schema)
    return b"".join((head, _LENGTH.pack(len(text)), text, tail))


def _decode_lookup(header: _Header, body: memoryview) -> frames.Lookup:
    timeout_ms, backlog_records = _unpack(_LOOKUP, body)
    return frames.Lookup(
        channel=_channel(header),
        sequence=header.sequence,
        timeout_ms=timeout_ms,
        backlog_records=backlog_records,
        payload=body[_LOOKUP.size :],
    )


def _decode_result(header: _Header, body: memoryview) -> frames.Result:
    return frames.Result(
        channel=_channel(header),
        sequence=header.sequence,
        is_last=bool(header.flags & _LAST),
        has_rows=bool(header.flags & _HAS_ROWS),
        payload=body,
    )


def _decode_credit(header: _Header, body: memoryview) -> frames.Credit:
    records, size = _unpack(_CREDIT, body)
    return frames.Credit(_channel(header), records, size)


def _decode_watermark(header: _Header, body: memoryview) -> frames.Watermark:
    (watermark_ms,) = _unpack(_WATERMARK, body)
    return frames.Watermark(_channel(header), watermark_ms)


def _decode_hello(_: _Header, body: memoryview) -> frames.Hello:
    words, _rest = _words(body)
    versions = tuple(_field(words, "versions", list))
    if not all(isinstance(version, int) for version in versions):
        raise _bad("versions must be whole numbers", HEADER.size)
    return frames.Hello(versions, _field(words, "agent", str))


def _decode_welcome(_: _Header, body: memoryview) -> frames.Welcome:
    words, _rest = _words(body)
    return frames.Welcome(_field(words, "version", int), _field(words, "agent", str))


def _decode_open(header: _Header, body: memoryview) -> frames.Open:
    words, rest = _words(body)
    columns = words.get("columns")
    if columns is not None and not _is_list_of_texts(columns):
        raise _bad("columns must be null or a list of names", HEADER.size)
    return frames.Open(
        channel=_channel(header),
        dimension=_field(words, "dimension", str),
        columns=None if columns is None else tuple(columns),
        origin=_field(words, "origin", str),
        key=decode_schema(rest),
    )


def _decode_opened(header: _Header, body: memoryview) -> frames.Opened:
    words, rest = _words(body)
    return frames.Opened(
        channel=_channel(header),
        credit_records=_field(words, "credit_records", int),
        credit_bytes=_field(words, "credit_bytes", int),
        columns=decode_schema(rest),
    )


def _decode_failure(header: _Header, body: memoryview) -> frames.Failure:
    words, _rest = _words(body)
    return frames.Failure(
        channel=header.channel,
        code=_field(words, "code", str),
        detail=_field(words, "detail", str),
        is_retryable=_field(words, "retryable", bool),
    )


def _decode_goaway(_: _Header, body: memoryview) -> frames.Goaway:
    words, _rest = _words(body)
    return frames.Goaway(_field(words, "reason", str))


_DECODERS: dict[int, Callable[[_Header, memoryview], Frame]] = {
    FrameKind.HELLO: _decode_hello,
    FrameKind.WELCOME: _decode_welcome,
    FrameKind.OPEN: _decode_open,
    FrameKind.OPENED: _decode_opened,
    FrameKind.LOOKUP: _decode_lookup,
    FrameKind.RESULT: _decode_result,
    FrameKind.CREDIT: _decode_credit,
    FrameKind.WATERMARK: _decode_watermark,
    FrameKind.STATUS: lambda header, _: frames.Status(
        _channel(header), is_idle=bool(header.flags & _IDLE)
    ),
    FrameKind.CANCEL: lambda header, _: frames.Cancel(_channel(header), header.sequence),
    FrameKind.CLOSE: lambda header, _: frames.Close(_channel(header)),
    FrameKind.CLOSED: lambda header, _: frames.Closed(_channel(header)),
    FrameKind.ERROR: _decode_failure,
    FrameKind.GOAWAY: _decode_goaway,
}


def _channel(header: _Header) -> int:
    if header.channel == frames.CONNECTION:
        raise _bad("this kind of frame needs a channel", 4)
    return header.channel


def _unpack(layout: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) < layout.size:
        raise _bad("the frame ends too early", HEADER.size + len(body))
    return layout.unpack_from(body)


def _words(body: memoryview) -> tuple[dict[str, Any], memoryview]:
    (length,) = _unpack(_LENGTH, body)
    text = body[_LENGTH.size : _LENGTH.size + length]
    if length > MAX_JSON_BYTES or len(text) < length:
        raise _bad("the description is longer than the frame or its limit", HEADER.size)
    try:
        words = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise _bad("the description is not JSON", HEADER.size + _LENGTH.size) from error
    if not isinstance(words, dict):
        raise _bad("the description must be a JSON object", HEADER.size + _LENGTH.size)
    return words, body[_LENGTH.size + length :]


def _field(words: dict[str, Any], name: str, kind: type[_T]) -> _T:
    value = words.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _bad(f"the description needs {name!r} of type {kind.__name__}", HEADER.size)
    return value


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _bad(detail: str, offset: int) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
