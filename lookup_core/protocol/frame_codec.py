"""Frames to bytes and back: a fixed little-endian header, then what the kind needs.

    offset  size  field
         0     1  kind
         1     1  flags      RESULT: 1 = last, 2 = has rows; STATUS: 1 = idle;
                             LOOKUP: 1 = has an event time; otherwise 0
         2     2  reserved   0
         4     4  channel    0 = the connection
         8     8  sequence   LOOKUP, RESULT, CANCEL: below 2**63; otherwise 0

Decoding never trusts the peer: whatever is wrong is a ProtocolViolation, before any state changes.
Not here: Arrow payloads stay bytes, because only the channel knows their schema.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, assert_never

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.described_frames import (
    DescribedFrame,
    decode_described,
    encode_described,
)
from lookup_core.protocol.frames import Frame, FrameKind

HEADER = struct.Struct("<BBHIQ")
_LOOKUP = struct.Struct("<II")
_LOOKUP_WITH_EVENT_TIME = struct.Struct("<IIq")
_WATERMARK = struct.Struct("<q")
_CREDIT = struct.Struct("<IQ")
_NOTHING = struct.Struct("")

# Signed where a language has no unsigned numbers. At a million lookups a second it would last for
# 290,000 years, so that nothing has to be said about what follows the last one.
_MAX_SEQUENCE = 2**63 - 1
_LAST = 1
_HAS_ROWS = 2
_IDLE = 1
_HAS_EVENT_TIME = 1
_FLAGS = {
    FrameKind.LOOKUP: _HAS_EVENT_TIME,
    FrameKind.RESULT: _LAST | _HAS_ROWS,
    FrameKind.STATUS: _IDLE,
}
_WITH_SEQUENCE = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}
_OF_CONNECTION = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
_OF_EITHER = {FrameKind.ERROR}
_KINDS = {int(kind): kind for kind in FrameKind}

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
            return b"".join((_lookup_head(frame), frame.payload))
        case frames.Result():
            flags = _LAST * frame.is_last | _HAS_ROWS * frame.has_rows
            head = _head(FrameKind.RESULT, frame.channel, sequence=frame.sequence, flags=flags)
            return b"".join((head, frame.payload))
        case _ if isinstance(frame, DescribedFrame):
            return _described_head(frame) + encode_described(frame)
        case _:
            return _encode_fixed(frame)


def decode_frame(message: bytes) -> Frame:
    """The frame in one WebSocket message.

    Raises ProtocolViolation (`bad_frame`, with the byte offset) for anything else than a frame.
    """
    if len(message) < HEADER.size:
        raise _bad(f"a frame has at least {HEADER.size} bytes, this one {len(message)}", 0)
    header = _Header._make(HEADER.unpack_from(message))
    kind = _KINDS.get(header.kind)
    if kind is None:
        raise _bad(f"unknown frame kind {header.kind}", 0)
    _check(header, kind)
    body = memoryview(message)[HEADER.size :]
    if kind in _DECODERS:
        return _DECODERS[kind](header, body)
    return decode_described(kind, body, channel=header.channel, offset=HEADER.size)


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


def _lookup_head(frame: frames.Lookup) -> bytes:
    flags = _HAS_EVENT_TIME * (frame.event_time_ms is not None)
    head = _head(FrameKind.LOOKUP, frame.channel, sequence=frame.sequence, flags=flags)
    if frame.event_time_ms is None:
        return head + _LOOKUP.pack(frame.timeout_ms, frame.backlog_records)
    return head + _LOOKUP_WITH_EVENT_TIME.pack(
        frame.timeout_ms, frame.backlog_records, frame.event_time_ms
    )


def _described_head(frame: DescribedFrame) -> bytes:
    match frame:
        case frames.Hello():
            return _head(FrameKind.HELLO, frames.CONNECTION)
        case frames.Welcome():
            return _head(FrameKind.WELCOME, frames.CONNECTION)
        case frames.Open():
            return _head(FrameKind.OPEN, frame.channel)
        case frames.Opened():
            return _head(FrameKind.OPENED, frame.channel)
        case frames.Failure():
            return _head(FrameKind.ERROR, frame.channel)
        case frames.Goaway():
            return _head(FrameKind.GOAWAY, frames.CONNECTION)
        case _:
            assert_never(frame)


def _decode_lookup(header: _Header, body: memoryview) -> frames.Lookup:
    layout = _LOOKUP_WITH_EVENT_TIME if header.flags & _HAS_EVENT_TIME else _LOOKUP
    timeout_ms, backlog_records, *event_time_ms = _unpack(layout, body[: layout.size])
    return frames.Lookup(
        channel=header.channel,
        sequence=header.sequence,
        timeout_ms=timeout_ms,
        backlog_records=backlog_records,
        payload=body[layout.size :],
        event_time_ms=event_time_ms[0] if event_time_ms else None,
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


_DECODERS: dict[FrameKind, Callable[[_Header, memoryview], Frame]] = {
    FrameKind.LOOKUP: _decode_lookup,
    FrameKind.RESULT: _decode_result,
    FrameKind.CREDIT: _decode_credit,
    FrameKind.WATERMARK: _decode_watermark,
    FrameKind.STATUS: _decode_status,
    FrameKind.CANCEL: _decode_cancel,
    FrameKind.CLOSE: _decode_close,
    FrameKind.CLOSED: _decode_closed,
}


def _unpack(layout: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != layout.size:
        shorter = min(len(body), layout.size)
        raise _bad(f"{layout.size} bytes were expected, not {len(body)}", HEADER.size + shorter)
    return layout.unpack(body)


def _bad(detail: str, offset: int) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
