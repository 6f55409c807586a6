"""Frame codec: a fixed little-endian header, then the body of the kind.

    offset  size  field
         0     1  kind
         1     1  flags      RESULT: 1 = last, 2 = has rows; STATUS: 1 = idle;
                             LOOKUP: 1 = has an event time; otherwise 0
         2     2  reserved   0
         4     4  channel    0 = the connection
         8     8  sequence   LOOKUP, RESULT, CANCEL: below 2**63; otherwise 0

The body of HELLO, WELCOME, OPEN, OPENED, REASON, ERROR and GOAWAY is a description: its length as a
u32, then a JSON object in UTF-8; in OPEN and OPENED an Arrow schema follows.

The peer is not trusted: any malformed frame is a ProtocolViolation. Arrow payloads stay bytes,
because only the channel knows their schema.
"""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeGuard, TypeVar

from lookup_core.compatibility import assert_never
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import bad_frame
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from lookup_core.protocol.frames import Frame, FrameKind, TraceParent

HEADER = struct.Struct("<BBHIQ")
MAX_DESCRIPTION_BYTES = 64 * 1024
MAX_DEFAULT_ROW_BYTES = 40 * 1024  # its text is a third longer
MAX_COUNT = 2**53 - 1  # the largest integer that JSON carries exactly in every language
_LENGTH = struct.Struct("<I")
_LOOKUP = struct.Struct("<II")
_LOOKUP_WITH_EVENT_TIME = struct.Struct("<IIq")
_EVENT_TIME = struct.Struct("<q")
_CREDIT = struct.Struct("<IQ")
_CACHED = struct.Struct("<QQQ")
_NOTHING = struct.Struct("")
_MAX_CACHED_KEYS = 2**40  # CACHED reports about a second: a peer can spoil no sum for ever
_SLOT_BYTES = 4
# For languages without unsigned integers; enough for 290,000 years of a million lookups a second.
_MAX_SEQUENCE = 2**63 - 1
_LAST, _HAS_ROWS = 1, 2  # flags of RESULT
_IDLE = _HAS_EVENT_TIME = 1
_FLAGS = {
    FrameKind.LOOKUP: _HAS_EVENT_TIME,
    FrameKind.RESULT: _LAST | _HAS_ROWS,
    FrameKind.STATUS: _IDLE,
}
_WITH_SEQUENCE = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}
_OF_CONNECTION = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
_KINDS = {int(kind): kind for kind in FrameKind}

_T = TypeVar("_T")
_JsonFrame = (
    frames.Hello
    | frames.Welcome
    | frames.Open
    | frames.Opened
    | frames.Reason
    | frames.Failure
    | frames.Goaway
)
_JSON_KINDS = {
    frames.Hello: FrameKind.HELLO,
    frames.Welcome: FrameKind.WELCOME,
    frames.Open: FrameKind.OPEN,
    frames.Opened: FrameKind.OPENED,
    frames.Failure: FrameKind.ERROR,
    frames.Goaway: FrameKind.GOAWAY,
    frames.Reason: FrameKind.REASON,
}


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
            flags = (_LAST if frame.is_last else 0) | (_HAS_ROWS if frame.has_rows else 0)
            head = _head(FrameKind.RESULT, frame.channel, sequence=frame.sequence, flags=flags)
            body = frame.payload
        case frames.Credit():
            head = _head(FrameKind.CREDIT, frame.channel)
            body = _CREDIT.pack(frame.records, frame.bytes)
        case frames.Watermark():
            head = _head(FrameKind.WATERMARK, frame.channel)
            body = _EVENT_TIME.pack(frame.watermark_ms)
        case frames.Status():
            flags = _IDLE if frame.is_idle else 0
            head = _head(FrameKind.STATUS, frame.channel, flags=flags)
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
            head = _head(_JSON_KINDS[type(frame)], getattr(frame, "channel", frames.CONNECTION))
            body = _json_body(frame)
    return b"".join((head, body))


def decode_frame(message: bytes) -> Frame:
    """The frame in one WebSocket message; a payload is a view of the message.

    Raises ProtocolViolation (`bad_frame`, with the byte offset) for a malformed frame.
    """
    if len(message) < HEADER.size:
        raise bad_frame(f"a frame has at least {HEADER.size} bytes, this one has {len(message)}", 0)
    header = _Header(*HEADER.unpack_from(message))
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
    flags, event_time = 0, b""
    if frame.event_time_ms is not None:
        flags, event_time = _HAS_EVENT_TIME, _EVENT_TIME.pack(frame.event_time_ms)
    head = _head(FrameKind.LOOKUP, frame.channel, sequence=frame.sequence, flags=flags)
    return head + _LOOKUP.pack(frame.timeout_ms, frame.backlog_records) + event_time


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
            frame = frames.Watermark(channel, *_unpack(_EVENT_TIME, body))
        case FrameKind.CACHED:
            frame = _decode_cached(header, body)
        case FrameKind.STATUS | FrameKind.CANCEL | FrameKind.CLOSE | FrameKind.CLOSED:
            _unpack(_NOTHING, body)
            frame = _bodiless(kind, header)
        case _:
            frame = _decode_described(kind, channel, _Description.decode(body))
    return frame


def _bodiless(kind: FrameKind, header: _Header) -> Frame:
    channel = header.channel
    match kind:
        case FrameKind.STATUS:
            return frames.Status(channel, is_idle=bool(header.flags & _IDLE))
        case FrameKind.CANCEL:
            return frames.Cancel(channel, header.sequence)
        case FrameKind.CLOSE:
            return frames.Close(channel)
    return frames.Closed(channel)


def _decode_cached(header: _Header, body: memoryview) -> frames.Cached:
    hits, missing, defaults = _unpack(_CACHED, body[: _CACHED.size])
    if hits + missing + defaults > _MAX_CACHED_KEYS:
        raise bad_frame(f"CACHED reports more than {_MAX_CACHED_KEYS} keys", HEADER.size)
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


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("a string")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError("true or false")


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _count(value: object) -> int:
    if _is_count(value):
        return value
    raise TypeError("an integer from 0 to 2**53 - 1")


def _counts(value: object) -> tuple[int, ...]:
    if isinstance(value, list) and all(map(_is_count, value)):
        return tuple(value)
    raise TypeError("a list of integers from 0 to 2**53 - 1")


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise TypeError("a list of strings")


def _base64(value: object) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError as error:  # also for letters beyond ASCII
        raise TypeError("base64") from error


@dataclass(frozen=True, slots=True)
class _Description:
    """A JSON object, and the bytes behind it; offsets are those in the frame."""

    members: Mapping[str, object]
    offset: int
    rest: memoryview
    rest_offset: int

    @classmethod
    def decode(cls, body: memoryview) -> "_Description":
        """The description at the start of a frame's body; raises ProtocolViolation for others."""
        offset = HEADER.size
        if len(body) < _LENGTH.size:
            raise bad_frame("the frame ends too early", offset + len(body))
        (length,) = _LENGTH.unpack_from(body)
        end = _LENGTH.size + length
        if length > MAX_DESCRIPTION_BYTES or len(body) < end:
            raise bad_frame("the description is longer than the frame or its limit", offset)
        offset += _LENGTH.size
        try:
            members = json.loads(bytes(body[_LENGTH.size : end]).decode())
            # JSON can escape half of a surrogate pair, which no log or answer can contain.
            json.dumps(members, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise bad_frame("the description is not JSON", offset) from error
        if not isinstance(members, dict):
            raise bad_frame("the description must be a JSON object", offset)
        return cls(members, offset, body[end:], offset + length)

    def required(self, read: Callable[[object], _T], name: str) -> _T:
        """A member; raises ProtocolViolation if it is absent, or has another type."""
        try:
            return read(self.members.get(name))
        except TypeError as error:
            detail = f"the description's {name!r} must be {error}"
            raise bad_frame(detail, self.offset) from error

    def optional(self, read: Callable[[object], _T], name: str) -> _T | None:
        """A member; None if it is absent or null."""
        return None if self.members.get(name) is None else self.required(read, name)


def _encode_description(members: Mapping[str, object]) -> bytes:
    text = json.dumps(members, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def _json_body(frame: _JsonFrame) -> bytes:
    """The description of a frame, and its schema if it has one."""
    match frame:
        case frames.Hello():
            members: dict[str, object] = {"versions": frame.versions, "agent": frame.agent}
        case frames.Welcome():
            members = {"version": frame.version, "agent": frame.agent}
        case frames.Open():
            return _encode_description(_open_members(frame)) + encode_schema(frame.key)
        case frames.Opened():
            return _encode_description(_opened_members(frame)) + encode_schema(frame.columns)
        case frames.Reason():
            members = {"code": frame.code, "detail": frame.detail}
        case frames.Failure():
            members = {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
        case frames.Goaway():
            members = {"reason": frame.reason}
        case _:
            assert_never(frame)
    return _encode_description(members)


def _decode_described(kind: FrameKind, channel: int, members: _Description) -> _JsonFrame:
    if kind is FrameKind.OPEN:
        return _decode_open(channel, members)
    if kind is FrameKind.OPENED:
        return _decode_opened(channel, members)
    if members.rest:
        raise bad_frame("the frame continues after its description", members.rest_offset)
    required = members.required
    match kind:
        case FrameKind.HELLO:
            frame: _JsonFrame = frames.Hello(
                required(_counts, "versions"), required(_text, "agent")
            )
        case FrameKind.WELCOME:
            frame = frames.Welcome(required(_count, "version"), required(_text, "agent"))
        case FrameKind.GOAWAY:
            frame = frames.Goaway(required(_text, "reason"))
        case FrameKind.REASON:
            frame = frames.Reason(channel, required(_text, "code"), required(_text, "detail"))
        case _:
            code, detail = required(_text, "code"), required(_text, "detail")
            frame = frames.Failure(channel, code, detail, required(_flag, "retryable"))
    return frame


def _open_members(frame: frames.Open) -> dict[str, object]:
    members: dict[str, object] = {
        "dimension": frame.dimension,
        "columns": frame.columns,
        "origin": frame.origin,
    }
    members |= _set_members(
        as_of=frame.is_as_of, default=frame.wants_default, reasons=frame.wants_reasons
    )
    if frame.trace is not None:
        members["traceparent"] = frame.trace.traceparent
        members["tracestate"] = frame.trace.tracestate
    return members | _set_members(**asdict(frame.options))


def _opened_members(frame: frames.Opened) -> dict[str, object]:
    members: dict[str, object] = {
        "credit_records": frame.credit_records,
        "credit_bytes": frame.credit_bytes,
        "key": frame.key,
    }
    if frame.versions is not None:
        members["valid_from"] = frame.versions.valid_from
        members["valid_to"] = frame.versions.valid_to
    default = None if frame.default is None else base64.b64encode(frame.default).decode()
    return members | _set_members(
        waits=frame.waits,
        all_rows=frame.has_all_rows,
        default=default,
        cache=frame.cache,
        **asdict(frame.options),
    )


def _set_members(**members: object) -> dict[str, object]:
    """The members that are set; peers without the others ignore them."""
    return {
        name: value for name, value in members.items() if value is not None and value is not False
    }


def _decode_options(members: _Description) -> LookupOptions:
    return LookupOptions(
        max_age_ms=members.optional(_count, "max_age_ms"),
        max_retries=members.optional(_count, "max_retries"),
        retry_delay_ms=members.optional(_count, "retry_delay_ms"),
        retry_if=members.optional(_text, "retry_if"),
    )


def _decode_open(channel: int, members: _Description) -> frames.Open:
    traceparent = members.optional(_text, "traceparent")
    tracestate = members.optional(_text, "tracestate") or ""
    return frames.Open(
        channel=channel,
        dimension=members.required(_text, "dimension"),
        columns=members.optional(_texts, "columns"),
        origin=members.required(_text, "origin"),
        key=decode_schema(members.rest, offset=members.rest_offset),
        is_as_of=members.optional(_flag, "as_of") or False,
        trace=None if traceparent is None else TraceParent(traceparent, tracestate),
        options=_decode_options(members),
        wants_default=members.optional(_flag, "default") or False,
        wants_reasons=members.optional(_flag, "reasons") or False,
    )


def _decode_opened(channel: int, members: _Description) -> frames.Opened:
    valid_from = members.optional(_text, "valid_from")
    valid_to = members.optional(_text, "valid_to")
    return frames.Opened(
        channel=channel,
        credit_records=members.required(_count, "credit_records"),
        credit_bytes=members.required(_count, "credit_bytes"),
        columns=decode_schema(members.rest, offset=members.rest_offset, may_be_nested=True),
        key=members.required(_texts, "key"),
        versions=None if valid_from is None else VersionColumns(valid_from, valid_to),
        waits=members.optional(_flag, "waits") or False,
        options=_decode_options(members),
        has_all_rows=members.optional(_flag, "all_rows") or False,
        default=members.optional(_base64, "default"),
        cache=members.optional(_text, "cache"),
    )
