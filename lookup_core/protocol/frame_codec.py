"""Frame codec: a fixed little-endian header, then the body of the kind.

    offset  size  field
         0     1  kind
         1     1  flags      RESULT: 1 = last, 2 = has rows; STATUS: 1 = idle;
                             LOOKUP: 1 = has an event time; otherwise 0
         2     2  reserved   0
         4     4  channel    0 = the connection
         8     8  sequence   LOOKUP, RESULT, CANCEL: below 2**63; otherwise 0

The peer is not trusted: any malformed frame is a ProtocolViolation. Arrow payloads stay bytes,
because only the channel knows their schema.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from lookup_core.errors import bad_frame
from lookup_core.protocol import frames
from lookup_core.protocol.frames import Frame, FrameKind
from lookup_core.protocol.json_frames import KINDS, decode_json_body, encode_json_body

HEADER = struct.Struct("<BBHIQ")
_LOOKUP = struct.Struct("<II")
_LOOKUP_WITH_EVENT_TIME = struct.Struct("<IIq")
_WATERMARK = struct.Struct("<q")
_CREDIT = struct.Struct("<IQ")
_CACHED = struct.Struct("<QQQ")
_MOST_KEYS = 2**40  # of one CACHED, which reports about a second: a peer can spoil no sum for ever
_SLOT_BYTES = 4
_NOTHING = struct.Struct("")

# For languages without unsigned integers; enough for 290,000 years of a million lookups a second.
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
_KINDS = {int(kind): kind for kind in FrameKind}


class _Header(NamedTuple):
    kind: int
    flags: int
    reserved: int
    channel: int
    sequence: int


def encode_frame(frame: Frame) -> bytes:
    """The bytes of one WebSocket message."""
    body: bytes | memoryview = b""
    match frame:
        case frames.Lookup():
            head, body = _lookup_head(frame), frame.payload
        case frames.Result():
            flags = _LAST * frame.is_last | _HAS_ROWS * frame.has_rows
            head = _head(FrameKind.RESULT, frame.channel, sequence=frame.sequence, flags=flags)
            body = frame.payload
        case frames.Credit():
            head = _head(FrameKind.CREDIT, frame.channel)
            body = _CREDIT.pack(frame.records, frame.bytes)
        case frames.Watermark():
            head = _head(FrameKind.WATERMARK, frame.channel)
            body = _WATERMARK.pack(frame.watermark_ms)
        case frames.Status():
            head = _head(FrameKind.STATUS, frame.channel, flags=_IDLE * frame.is_idle)
        case frames.Cached():
            counts = _CACHED.pack(frame.hits, frame.missing, frame.defaults)
            head = _head(FrameKind.CACHED, frame.channel) + counts
            body = frame.visited
        case frames.Cancel():
            head = _head(FrameKind.CANCEL, frame.channel, sequence=frame.sequence)
        case frames.Close():
            head = _head(FrameKind.CLOSE, frame.channel)
        case frames.Closed():
            head = _head(FrameKind.CLOSED, frame.channel)
        case _:
            head = _head(KINDS[type(frame)], getattr(frame, "channel", frames.CONNECTION))
            body = encode_json_body(frame)
    return b"".join((head, body))


def decode_frame(message: bytes) -> Frame:
    """The frame in one WebSocket message; a payload is a view of the message.

    Raises ProtocolViolation (`bad_frame`, with the byte offset) for a malformed frame.
    """
    if len(message) < HEADER.size:
        raise bad_frame(f"a frame has at least {HEADER.size} bytes, this one has {len(message)}", 0)
    header = _Header._make(HEADER.unpack_from(message))
    kind = _KINDS.get(header.kind)
    if kind is None:
        raise bad_frame(f"unknown frame kind {header.kind}", 0)
    _check(header, kind)
    return _decode_body(kind, header, memoryview(message)[HEADER.size :])


def _check(header: _Header, kind: FrameKind) -> None:
    if header.flags & ~_FLAGS.get(kind, 0):
        raise bad_frame(f"{kind.name} has unknown flags", 1)
    if header.reserved:
        raise bad_frame("the reserved field must be 0", 2)
    if header.channel == frames.CONNECTION:
        if kind not in _OF_CONNECTION and kind is not FrameKind.ERROR:
            raise bad_frame(f"{kind.name} needs a channel", 4)
    elif kind in _OF_CONNECTION:
        raise bad_frame(f"{kind.name} concerns the connection, not a channel", 4)
    if header.sequence and kind not in _WITH_SEQUENCE:
        raise bad_frame(f"{kind.name} has no sequence", 8)
    if header.sequence > _MAX_SEQUENCE:
        raise bad_frame("the sequence is beyond 2**63 - 1", 8)


def _head(kind: FrameKind, channel: int, *, sequence: int = 0, flags: int = 0) -> bytes:
    return HEADER.pack(kind, flags, 0, channel, sequence)


def _lookup_head(frame: frames.Lookup) -> bytes:
    flags = _HAS_EVENT_TIME * (frame.event_time_ms is not None)
    head = _head(FrameKind.LOOKUP, frame.channel, sequence=frame.sequence, flags=flags)
    if frame.event_time_ms is None:
        return head + _LOOKUP.pack(frame.timeout_ms, frame.backlog_records)
    return head + _LOOKUP_WITH_EVENT_TIME.pack(
        frame.timeout_ms, frame.backlog_records, frame.event_time_ms
    )


def _decode_body(kind: FrameKind, header: _Header, body: memoryview) -> Frame:
    channel = header.channel
    frame: Frame
    match kind:
        case FrameKind.LOOKUP:
            frame = _decode_lookup(header, body)
        case FrameKind.RESULT:
            is_last, has_rows = bool(header.flags & _LAST), bool(header.flags & _HAS_ROWS)
            frame = frames.Result(channel, header.sequence, is_last, has_rows, body)
        case FrameKind.CREDIT:
            frame = frames.Credit(channel, *_unpack(_CREDIT, body))
        case FrameKind.WATERMARK:
            frame = frames.Watermark(channel, *_unpack(_WATERMARK, body))
        case FrameKind.STATUS:
            _unpack(_NOTHING, body)
            frame = frames.Status(channel, is_idle=bool(header.flags & _IDLE))
        case FrameKind.CACHED:
            frame = _decode_cached(header, body)
        case FrameKind.CANCEL | FrameKind.CLOSE | FrameKind.CLOSED:
            _unpack(_NOTHING, body)
            frame = _BODILESS[kind](header)
        case _:
            frame = decode_json_body(kind, body, channel=channel, offset=HEADER.size)
    return frame


_BODILESS: dict[FrameKind, Callable[[_Header], Frame]] = {
    FrameKind.CANCEL: lambda header: frames.Cancel(header.channel, header.sequence),
    FrameKind.CLOSE: lambda header: frames.Close(header.channel),
    FrameKind.CLOSED: lambda header: frames.Closed(header.channel),
}


def _decode_cached(header: _Header, body: memoryview) -> frames.Cached:
    hits, missing, defaults = _unpack(_CACHED, body[: _CACHED.size])
    if hits + missing + defaults > _MOST_KEYS:
        raise bad_frame(f"CACHED reports more than {_MOST_KEYS} keys", HEADER.size)
    visited = body[_CACHED.size :]
    if len(visited) % _SLOT_BYTES:
        raise bad_frame("slots have 4 bytes each", HEADER.size + _CACHED.size)
    return frames.Cached(header.channel, hits, missing, defaults, visited)


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


def _unpack(layout: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != layout.size:
        shorter = min(len(body), layout.size)
        raise bad_frame(f"expected {layout.size} bytes, got {len(body)}", HEADER.size + shorter)
    return layout.unpack(body)
