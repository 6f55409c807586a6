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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import pyarrow as pa

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
_JSON_OFFSET = HEADER.size + _LENGTH.size
_EVENT_TIME = struct.Struct("<q")
_LOOKUP = struct.Struct("<II")
_LOOKUP_WITH_EVENT_TIME = struct.Struct("<IIq")
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
_WITH_PAYLOAD = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CACHED}
_OF_CONNECTION = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
_NUMBERS = {
    FrameKind.LOOKUP: _LOOKUP,
    FrameKind.CREDIT: _CREDIT,
    FrameKind.WATERMARK: _EVENT_TIME,
    FrameKind.CACHED: _CACHED,
}
_KINDS = {int(kind): kind for kind in FrameKind}

_DescribedFrame: TypeAlias = (
    frames.Hello
    | frames.Welcome
    | frames.Open
    | frames.Opened
    | frames.Reason
    | frames.Failure
    | frames.Goaway
)


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of a member of a description, as errors name it; no value is converted."""

    name: str
    kind: type[Any]
    is_list: bool = False

    def accepts(self, value: object) -> bool:
        values = value if self.is_list else [value]
        return isinstance(values, list) and all(
            type(each) is self.kind and (self.kind is not int or 0 <= each <= MAX_COUNT)
            for each in values
        )


_TEXT, _FLAG = _Type("a string", str), _Type("true or false", bool)
_COUNT = _Type("an integer from 0 to 2**53 - 1", int)
_TEXTS = _Type("a list of strings", str, is_list=True)
_COUNTS = _Type("a list of integers from 0 to 2**53 - 1", int, is_list=True)
# Named as the fields of LookupOptions.
_OPTIONS = dict.fromkeys(("max_age_ms", "max_retries", "retry_delay_ms"), _COUNT)
_OPTIONS["retry_if"] = _TEXT
# Members of descriptions.
_REQUIRED = {
    FrameKind.HELLO: {"versions": _COUNTS, "agent": _TEXT},
    FrameKind.WELCOME: {"version": _COUNT, "agent": _TEXT},
    FrameKind.OPEN: {"dimension": _TEXT, "origin": _TEXT},
    FrameKind.OPENED: {"credit_records": _COUNT, "credit_bytes": _COUNT, "key": _TEXTS},
    FrameKind.REASON: {"code": _TEXT, "detail": _TEXT},
    FrameKind.ERROR: {"code": _TEXT, "detail": _TEXT, "retryable": _FLAG},
    FrameKind.GOAWAY: {"reason": _TEXT},
}
_OPTIONAL = {
    FrameKind.OPEN: {
        "columns": _TEXTS,
        **dict.fromkeys(("as_of", "default", "reasons"), _FLAG),
        **dict.fromkeys(("traceparent", "tracestate"), _TEXT),
        **_OPTIONS,
    },
    FrameKind.OPENED: {
        **dict.fromkeys(("waits", "all_rows"), _FLAG),
        **dict.fromkeys(("valid_from", "valid_to", "default", "cache"), _TEXT),
        **_OPTIONS,
    },
}


def encode_frame(frame: Frame) -> bytes:
    """The bytes of one WebSocket message."""
    flags = sequence = 0
    numbers: bytes = b""
    payload: bytes | memoryview = b""
    match frame:
        case frames.Lookup():
            sequence, payload = frame.sequence, frame.payload
            numbers = _LOOKUP.pack(frame.timeout_ms, frame.backlog_records)
            if frame.event_time_ms is not None:
                flags, numbers = _HAS_EVENT_TIME, numbers + _EVENT_TIME.pack(frame.event_time_ms)
        case frames.Result():
            sequence, payload = frame.sequence, frame.payload
            flags = (_LAST if frame.is_last else 0) | (_HAS_ROWS if frame.has_rows else 0)
        case frames.Credit():
            numbers = _CREDIT.pack(frame.records, frame.bytes)
        case frames.Watermark():
            numbers = _EVENT_TIME.pack(frame.watermark_ms)
        case frames.Cached():
            numbers = _CACHED.pack(frame.hits, frame.missing, frame.defaults)
            payload = frame.visited
        case frames.Status():
            flags = _IDLE if frame.is_idle else 0
        case frames.Cancel():
            sequence = frame.sequence
        case frames.Close() | frames.Closed():
            pass
        case _:
            payload = _encode_description(frame)
    channel = getattr(frame, "channel", frames.CONNECTION)
    return b"".join((HEADER.pack(frame.kind, flags, 0, channel, sequence), numbers, payload))


def decode_frame(message: bytes) -> Frame:
    """The frame in one WebSocket message; a payload is a view of the message.

    Raises ProtocolViolation (`bad_frame`, with the byte offset) for a malformed frame.
    """
    if len(message) < HEADER.size:
        raise bad_frame(f"a frame has at least {HEADER.size} bytes, this one has {len(message)}", 0)
    number, flags, reserved, channel, sequence = HEADER.unpack_from(message)
    kind = _KINDS.get(number)
    if kind is None:
        raise bad_frame(f"unknown frame kind {number}", 0)
    if flags & ~_FLAGS.get(kind, 0):
        raise bad_frame(f"{kind.name} has unknown flags", 1)
    if reserved:
        raise bad_frame("the reserved field must be 0", 2)
    if (channel == frames.CONNECTION) != (kind in _OF_CONNECTION) and kind is not FrameKind.ERROR:
        place = "concerns the connection, not" if channel else "needs"
        raise bad_frame(f"{kind.name} {place} a channel", 4)
    if sequence and kind not in _WITH_SEQUENCE:
        raise bad_frame(f"{kind.name} has no sequence", 8)
    if sequence > _MAX_SEQUENCE:
        raise bad_frame("the sequence is beyond 2**63 - 1", 8)
    if kind in _REQUIRED:
        return _decode_described(kind, channel, message)
    return _decode_plain(kind, message, channel=channel, sequence=sequence, flags=flags)


def _decode_plain(
    kind: FrameKind, message: bytes, *, channel: int, sequence: int, flags: int
) -> Frame:
    """A frame of numbers and a payload."""
    numbers = _NUMBERS.get(kind, _NOTHING)
    if kind is FrameKind.LOOKUP and flags:
        numbers = _LOOKUP_WITH_EVENT_TIME
    end = HEADER.size + numbers.size
    payload = memoryview(message)[end:]
    if len(message) < end or (payload and kind not in _WITH_PAYLOAD):
        detail = f"expected {numbers.size} bytes, got {len(message) - HEADER.size}"
        raise bad_frame(detail, min(len(message), end))
    values = numbers.unpack_from(message, HEADER.size)
    frame: Frame
    match kind:
        case FrameKind.LOOKUP:
            event_time_ms = values[2] if flags else None
            frame = frames.Lookup(channel, sequence, values[0], values[1], payload, event_time_ms)
        case FrameKind.RESULT:
            is_last, has_rows = bool(flags & _LAST), bool(flags & _HAS_ROWS)
            frame = frames.Result(channel, sequence, is_last, has_rows, payload)
        case FrameKind.CREDIT:
            frame = frames.Credit(channel, *values)
        case FrameKind.WATERMARK:
            frame = frames.Watermark(channel, *values)
        case FrameKind.CACHED:
            frame = _cached(channel, values, payload)
        case FrameKind.STATUS:
            frame = frames.Status(channel, is_idle=flags == _IDLE)
        case FrameKind.CANCEL:
            frame = frames.Cancel(channel, sequence)
        case _:
            frame = frames.Close(channel) if kind is FrameKind.CLOSE else frames.Closed(channel)
    return frame


def _cached(channel: int, counts: tuple[int, int, int], visited: memoryview) -> frames.Cached:
    if sum(counts) > _MAX_CACHED_KEYS:
        raise bad_frame(f"CACHED reports more than {_MAX_CACHED_KEYS} keys", HEADER.size)
    if len(visited) % _SLOT_BYTES:
        raise bad_frame("slots have 4 bytes each", HEADER.size + _CACHED.size)
    hits, missing, defaults = counts
    return frames.Cached(channel, hits, missing, defaults, visited)


def _decode_described(kind: FrameKind, channel: int, message: bytes) -> Frame:
    """A frame of a description, and of a schema in OPEN and OPENED."""
    members, end = _decode_description(kind, message)
    rest = memoryview(message)[end:]
    frame: Frame
    match kind:
        case FrameKind.OPEN:
            return _open(channel, members, decode_schema(rest, offset=end))
        case FrameKind.OPENED:
            columns = decode_schema(rest, offset=end, may_be_nested=True)
            return _opened(channel, members, columns)
        case FrameKind.HELLO:
            frame = frames.Hello(tuple(members["versions"]), members["agent"])
        case FrameKind.WELCOME:
            frame = frames.Welcome(members["version"], members["agent"])
        case FrameKind.GOAWAY:
            frame = frames.Goaway(members["reason"])
        case FrameKind.REASON:
            frame = frames.Reason(channel, members["code"], members["detail"])
        case _:
            code, detail = members["code"], members["detail"]
            frame = frames.Failure(channel, code, detail, members["retryable"])
    return frame


def _decode_description(kind: FrameKind, message: bytes) -> tuple[dict[str, Any], int]:
    """The members of a description, and the offset of its end."""
    begin = HEADER.size + _LENGTH.size
    if len(message) < begin:
        raise bad_frame("the frame ends too early", len(message))
    end = begin + _LENGTH.unpack_from(message, HEADER.size)[0]
    if end - begin > MAX_DESCRIPTION_BYTES or len(message) < end:
        raise bad_frame("the description is longer than the frame or its limit", HEADER.size)
    try:
        members = json.loads(message[begin:end].decode())
        # JSON can escape half of a surrogate pair, which no log or answer can contain.
        json.dumps(members, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise bad_frame("the description is not JSON", begin) from error
    if not isinstance(members, dict):
        raise bad_frame("the description must be a JSON object", begin)
    optional = _OPTIONAL.get(kind)
    if optional is None and len(message) > end:
        raise bad_frame("the frame continues after its description", end)
    known = {name: members.get(name) for name in (*_REQUIRED[kind], *(optional or ()))}
    for name, wanted in (_REQUIRED[kind] | (optional or {})).items():
        is_omitted = known[name] is None and name not in _REQUIRED[kind]
        if not is_omitted and not wanted.accepts(known[name]):
            raise bad_frame(f"the description's {name!r} must be {wanted.name}", begin)
    return known, end


def _open(channel: int, members: Mapping[str, Any], key: pa.Schema) -> frames.Open:
    columns, traceparent = members["columns"], members["traceparent"]
    trace = None
    if traceparent is not None:
        trace = TraceParent(traceparent, members["tracestate"] or "")
    return frames.Open(
        channel=channel,
        dimension=members["dimension"],
        columns=None if columns is None else tuple(columns),
        origin=members["origin"],
        key=key,
        is_as_of=members["as_of"] or False,
        trace=trace,
        options=LookupOptions(**{name: members[name] for name in _OPTIONS}),
        wants_default=members["default"] or False,
        wants_reasons=members["reasons"] or False,
    )


def _opened(channel: int, members: Mapping[str, Any], columns: pa.Schema) -> frames.Opened:
    valid_from, default = members["valid_from"], members["default"]
    if default is not None:
        try:
            default = base64.b64decode(default, validate=True)
        except ValueError as error:  # also for letters beyond ASCII
            detail = "the description's 'default' must be base64"
            raise bad_frame(detail, HEADER.size + _LENGTH.size) from error
    versions = None if valid_from is None else VersionColumns(valid_from, members["valid_to"])
    return frames.Opened(
        channel=channel,
        credit_records=members["credit_records"],
        credit_bytes=members["credit_bytes"],
        columns=columns,
        key=tuple(members["key"]),
        versions=versions,
        waits=members["waits"] or False,
        options=LookupOptions(**{name: members[name] for name in _OPTIONS}),
        has_all_rows=members["all_rows"] or False,
        default=default,
        cache=members["cache"],
    )


def _encode_description(frame: _DescribedFrame) -> bytes:
    """The description of a frame, and its schema if it has one."""
    schema = b""
    members: dict[str, object]
    match frame:
        case frames.Hello():
            members = {"versions": frame.versions, "agent": frame.agent}
        case frames.Welcome():
            members = {"version": frame.version, "agent": frame.agent}
        case frames.Open():
            schema = encode_schema(frame.key)
            members = {"dimension": frame.dimension, "columns": frame.columns}
            members |= {"origin": frame.origin, **_optional_members(frame)}
        case frames.Opened():
            schema = encode_schema(frame.columns)
            members = {"credit_records": frame.credit_records, "credit_bytes": frame.credit_bytes}
            members["key"] = frame.key
            if frame.versions is not None:
                members |= asdict(frame.versions)
            members |= _optional_members(frame)
        case frames.Reason():
            members = {"code": frame.code, "detail": frame.detail}
        case frames.Failure():
            members = {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
        case frames.Goaway():
            members = {"reason": frame.reason}
        case _:
            assert_never(frame)
    text = json.dumps(members, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + schema


def _optional_members(frame: frames.Open | frames.Opened) -> dict[str, object]:
    """The members that are set; peers without the others ignore them."""
    members: dict[str, object]
    if isinstance(frame, frames.Open):
        members = {"as_of": frame.is_as_of, "default": frame.wants_default}
        members["reasons"] = frame.wants_reasons
        if frame.trace is not None:
            members |= asdict(frame.trace)
    else:
        default = None if frame.default is None else base64.b64encode(frame.default).decode()
        members = {"waits": frame.waits, "all_rows": frame.has_all_rows}
        members |= {"default": default, "cache": frame.cache}
    members |= {name: getattr(frame.options, name) for name in _OPTIONS}
    return {
        name: value for name, value in members.items() if value is not None and value is not False
    }
