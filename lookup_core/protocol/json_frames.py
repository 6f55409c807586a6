"""JSON-bodied frames: HELLO, WELCOME, OPEN, OPENED, REASON, ERROR and GOAWAY to bytes and back.

The body is a description (its length as a little-endian u32, then a JSON object in UTF-8), in OPEN
and OPENED followed by an Arrow schema. The frame header belongs to `frame_codec`.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeGuard

from lookup_core.compatibility import assert_never
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ProtocolViolation, bad_frame
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from lookup_core.protocol.frames import FrameKind, TraceParent

MAX_BYTES = 64 * 1024
MAX_DEFAULT_BYTES = 40 * 1024  # of a default row, whose text is a third longer
MAX_COUNT = 2**53 - 1  # the largest integer that JSON carries exactly in every language

_LENGTH = struct.Struct("<I")

JsonFrame = (
    frames.Hello
    | frames.Welcome
    | frames.Open
    | frames.Opened
    | frames.Reason
    | frames.Failure
    | frames.Goaway
)
KINDS = {
    frames.Hello: FrameKind.HELLO,
    frames.Welcome: FrameKind.WELCOME,
    frames.Open: FrameKind.OPEN,
    frames.Opened: FrameKind.OPENED,
    frames.Failure: FrameKind.ERROR,
    frames.Goaway: FrameKind.GOAWAY,
    frames.Reason: FrameKind.REASON,
}


@dataclass(frozen=True, slots=True)
class FrameDescription:
    """The description of a frame, and the bytes behind it.

    Each method returns one member; it raises ProtocolViolation for a value of another type.
    """

    members: Mapping[str, object]
    offset: int  # of the JSON object in its frame
    rest: memoryview
    rest_offset: int

    def text(self, name: str) -> str:
        """A string."""
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self._fault(name, "a string")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A string; None if it is absent or null."""
        return None if self.members.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """A boolean."""
        value = self.members.get(name)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false")
        return value

    def flag_or_false(self, name: str) -> bool:
        """A boolean; False if it is absent or null."""
        return self.members.get(name) is not None and self.flag(name)

    def count(self, name: str) -> int:
        """An integer from 0 to `MAX_COUNT`."""
        value = self.members.get(name)
        if not _is_count(value):
            raise self._fault(name, "an integer from 0 to 2**53 - 1")
        return value

    def count_or_none(self, name: str) -> int | None:
        """An integer from 0 to `MAX_COUNT`; None if it is absent or null."""
        return None if self.members.get(name) is None else self.count(name)

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of integers from 0 to `MAX_COUNT`."""
        value = self.members.get(name)
        if not isinstance(value, list) or not all(map(_is_count, value)):
            raise self._fault(name, "a list of integers from 0 to 2**53 - 1")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.members.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._fault(name, "a list of strings")
        return tuple(value)

    def texts_or_none(self, name: str) -> tuple[str, ...] | None:
        """A list of strings; None if it is absent or null."""
        return None if self.members.get(name) is None else self.texts(name)

    def bytes_or_none(self, name: str) -> bytes | None:
        """The bytes of a base64 string; None if it is absent or null."""
        text = self.text_or_none(name)
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:  # the latter for other letters
            raise self._fault(name, "base64") from error

    def _fault(self, name: str, expected: str) -> ProtocolViolation:
        return bad_frame(f"the description's {name!r} must be {expected}", self.offset)


def encode_description(members: Mapping[str, object]) -> bytes:
    """The bytes of a description."""
    text = json.dumps(members, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def decode_description(body: memoryview, *, offset: int) -> FrameDescription:
    """The description at the start of a frame body, which is at byte `offset` of the frame.

    Raises ProtocolViolation for other bytes.
    """
    if len(body) < _LENGTH.size:
        raise bad_frame("the frame ends too early", offset + len(body))
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if length > MAX_BYTES or len(body) < end:
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
    return FrameDescription(members, offset, body[end:], offset + length)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def encode_json_body(frame: JsonFrame) -> bytes:
    """The description of a frame, and its schema if it has one."""
    match frame:
        case frames.Hello():
            members: dict[str, object] = {"versions": frame.versions, "agent": frame.agent}
        case frames.Welcome():
            members = {"version": frame.version, "agent": frame.agent}
        case frames.Open():
            return encode_description(_open_members(frame)) + encode_schema(frame.key)
        case frames.Opened():
            return encode_description(_opened_members(frame)) + encode_schema(frame.columns)
        case frames.Reason():
            members = {"code": frame.code, "detail": frame.detail}
        case frames.Failure():
            members = {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
        case frames.Goaway():
            members = {"reason": frame.reason}
        case _:
            assert_never(frame)
    return encode_description(members)


def decode_json_body(kind: FrameKind, body: memoryview, *, channel: int, offset: int) -> JsonFrame:
    """The frame whose body is at byte `offset`; raises ProtocolViolation for other bytes."""
    members = decode_description(body, offset=offset)
    if kind is FrameKind.OPEN:
        return _decoded_open(channel, members)
    if kind is FrameKind.OPENED:
        return _decoded_opened(channel, members)
    if members.rest:
        raise bad_frame("the frame continues after its description", members.rest_offset)
    return _decoded_members(kind, channel, members)


def _decoded_members(kind: FrameKind, channel: int, members: FrameDescription) -> JsonFrame:
    match kind:
        case FrameKind.HELLO:
            return frames.Hello(members.counts("versions"), members.text("agent"))
        case FrameKind.WELCOME:
            return frames.Welcome(members.count("version"), members.text("agent"))
        case FrameKind.GOAWAY:
            return frames.Goaway(members.text("reason"))
        case FrameKind.REASON:
            return frames.Reason(channel, members.text("code"), members.text("detail"))
    return frames.Failure(
        channel=channel,
        code=members.text("code"),
        detail=members.text("detail"),
        is_retryable=members.flag("retryable"),
    )


def _open_members(frame: frames.Open) -> dict[str, object]:
    members: dict[str, object] = {
        "dimension": frame.dimension,
        "columns": frame.columns,
        "origin": frame.origin,
    }
    if frame.is_as_of:
        members["as_of"] = True
    if frame.wants_default:
        members["default"] = True
    if frame.wants_reasons:
        members["reasons"] = True
    if frame.trace is not None:
        members["traceparent"] = frame.trace.traceparent
        members["tracestate"] = frame.trace.tracestate
    return members | _option_members(frame.options)


def _opened_members(frame: frames.Opened) -> dict[str, object]:
    members: dict[str, object] = {
        "credit_records": frame.credit_records,
        "credit_bytes": frame.credit_bytes,
        "key": frame.key,
    }
    if frame.versions is not None:
        members["valid_from"] = frame.versions.valid_from
        members["valid_to"] = frame.versions.valid_to
    if frame.waits:
        members["waits"] = True
    if frame.has_all_rows:
        members["all_rows"] = True
    if frame.default is not None:
        members["default"] = base64.b64encode(frame.default).decode()
    if frame.cache is not None:
        members["cache"] = frame.cache
    return members | _option_members(frame.options)


def _option_members(options: LookupOptions) -> dict[str, object]:
    """The members of the options that are set; peers without options ignore them."""
    return {name: value for name, value in asdict(options).items() if value is not None}


def _decoded_options(members: FrameDescription) -> LookupOptions:
    return LookupOptions(
        max_age_ms=members.count_or_none("max_age_ms"),
        max_retries=members.count_or_none("max_retries"),
        retry_delay_ms=members.count_or_none("retry_delay_ms"),
        retry_if=members.text_or_none("retry_if"),
    )


def _decoded_open(channel: int, members: FrameDescription) -> frames.Open:
    traceparent = members.text_or_none("traceparent")
    tracestate = members.text_or_none("tracestate") or ""
    return frames.Open(
        channel=channel,
        dimension=members.text("dimension"),
        columns=members.texts_or_none("columns"),
        origin=members.text("origin"),
        key=decode_schema(members.rest, offset=members.rest_offset),
        is_as_of=members.flag_or_false("as_of"),
        trace=None if traceparent is None else TraceParent(traceparent, tracestate),
        options=_decoded_options(members),
        wants_default=members.flag_or_false("default"),
        wants_reasons=members.flag_or_false("reasons"),
    )


def _decoded_opened(channel: int, members: FrameDescription) -> frames.Opened:
    valid_from, valid_to = members.text_or_none("valid_from"), members.text_or_none("valid_to")
    return frames.Opened(
        channel=channel,
        credit_records=members.count("credit_records"),
        credit_bytes=members.count("credit_bytes"),
        columns=decode_schema(members.rest, offset=members.rest_offset, may_be_nested=True),
        key=members.texts("key"),
        versions=None if valid_from is None else VersionColumns(valid_from, valid_to),
        waits=members.flag_or_false("waits"),
        options=_decoded_options(members),
        has_all_rows=members.flag_or_false("all_rows"),
        default=members.bytes_or_none("default"),
        cache=members.text_or_none("cache"),
    )
