"""JSON-bodied frames: HELLO, WELCOME, OPEN, OPENED, ERROR and GOAWAY to bytes and back."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard, assert_never

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from lookup_core.protocol.frames import FrameKind
from lookup_core.protocol.trace_parent import TraceParent

MAX_BYTES = 64 * 1024
MAX_COUNT = 2**53 - 1  # the largest that JSON carries exactly in every language

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class FrameDescription:
    """What a peer described, and what follows in the frame.

    Whatever a field holds besides what is asked for raises ProtocolViolation.
    """

    fields: Mapping[str, object]
    offset: int  # of the object in its frame
    rest: memoryview
    rest_offset: int

    def text(self, name: str) -> str:
        """A text."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self._fault(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text, or nothing."""
        return None if self.fields.get(name) is None else self.text(name)

    def truth(self, name: str) -> bool:
        """True or false."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false")
        return value

    def truth_if_told(self, name: str) -> bool:
        """True or false; false where it does not stand there, or nothing."""
        return self.fields.get(name) is not None and self.truth(name)

    def count(self, name: str) -> int:
        """A whole number from 0 to `MAX_COUNT`."""
        value = self.fields.get(name)
        if not _is_count(value):
            raise self._fault(name, "a whole number from 0 to 2**53 - 1")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 to `MAX_COUNT`."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(map(_is_count, value)):
            raise self._fault(name, "a list of whole numbers from 0 to 2**53 - 1")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._fault(name, "a list of texts")
        return tuple(value)

    def texts_or_none(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, or nothing."""
        return None if self.fields.get(name) is None else self.texts(name)

    def _fault(self, name: str, wanted: str) -> ProtocolViolation:
        return _bad(f"the description's {name!r} must be {wanted}", self.offset)


def encode_description(fields: Mapping[str, object]) -> bytes:
    """The bytes of a description."""
    text = json.dumps(fields, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def decode_description(body: memoryview, *, offset: int) -> FrameDescription:
    """The description at the start of a frame's body, which stands at byte `offset`.

    Raises ProtocolViolation for other bytes.
    """
    if len(body) < _LENGTH.size:
        raise _bad("the frame ends too early", offset + len(body))
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if length > MAX_BYTES or len(body) < end:
        raise _bad("the description is longer than the frame or its limit", offset)
    try:
        fields = json.loads(bytes(body[_LENGTH.size : end]).decode())
        # Half of a surrogate pair can be escaped in JSON, but not be written to a log or an answer.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _bad("the description is not JSON", offset + _LENGTH.size) from error
    if not isinstance(fields, dict):
        raise _bad("the description must be a JSON object", offset + _LENGTH.size)
    return FrameDescription(fields, offset + _LENGTH.size, body[end:], offset + end)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _bad(detail: str, offset: int) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)


DescribedFrame = (
    frames.Hello | frames.Welcome | frames.Open | frames.Opened | frames.Failure | frames.Goaway
)


def encode_described(frame: DescribedFrame) -> bytes:
    """The words of a frame, and the schema behind them if it has one."""
    words = encode_description(_words(frame))
    match frame:
        case frames.Open():
            return words + encode_schema(frame.key)
        case frames.Opened():
            return words + encode_schema(frame.columns)
        case _:
            return words


def decode_described(
    kind: FrameKind, body: memoryview, *, channel: int, offset: int
) -> DescribedFrame:
    """The frame whose body stands at byte `offset`; raises ProtocolViolation for other bytes."""
    words = decode_description(body, offset=offset)
    if kind not in _WITH_SCHEMA and words.rest:
        detail = "something follows the description"
        raise ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=words.rest_offset)
    return _DECODERS[kind](channel, words)


def _words(frame: DescribedFrame) -> dict[str, object]:
    match frame:
        case frames.Hello():
            return {"versions": list(frame.versions), "agent": frame.agent}
        case frames.Welcome():
            return {"version": frame.version, "agent": frame.agent}
        case frames.Open():
            return _open_words(frame)
        case frames.Opened():
            return _opened_words(frame)
        case frames.Failure():
            return {"code": frame.code, "detail": frame.detail, "retryable": frame.is_retryable}
        case frames.Goaway():
            return {"reason": frame.reason}
        case _:
            assert_never(frame)


def _open_words(frame: frames.Open) -> dict[str, object]:
    columns = None if frame.columns is None else list(frame.columns)
    words: dict[str, object] = {
        "dimension": frame.dimension,
        "columns": columns,
        "origin": frame.origin,
    }
    if frame.is_as_of:
        words["as_of"] = True
    if frame.trace is not None:
        words["traceparent"] = frame.trace.traceparent
        words["tracestate"] = frame.trace.tracestate
    return words


def _opened_words(frame: frames.Opened) -> dict[str, object]:
    words: dict[str, object] = {
        "credit_records": frame.credit_records,
        "credit_bytes": frame.credit_bytes,
        "key": list(frame.key),
    }
    if frame.versions is not None:
        words["valid_from"] = frame.versions.valid_from
        words["valid_to"] = frame.versions.valid_to
    if frame.waits:
        words["waits"] = True
    return words


def _decode_hello(_: int, words: FrameDescription) -> frames.Hello:
    return frames.Hello(words.counts("versions"), words.text("agent"))


def _decode_welcome(_: int, words: FrameDescription) -> frames.Welcome:
    return frames.Welcome(words.count("version"), words.text("agent"))


def _decode_open(channel: int, words: FrameDescription) -> frames.Open:
    return frames.Open(
        channel=channel,
        dimension=words.text("dimension"),
        columns=words.texts_or_none("columns"),
        origin=words.text("origin"),
        key=decode_schema(words.rest, offset=words.rest_offset),
        is_as_of=words.truth_if_told("as_of"),
        trace=_trace(words),
    )


def _trace(words: FrameDescription) -> TraceParent | None:
    traceparent = words.text_or_none("traceparent")
    tracestate = words.text_or_none("tracestate")
    return None if traceparent is None else TraceParent(traceparent, tracestate or "")


def _decode_opened(channel: int, words: FrameDescription) -> frames.Opened:
    valid_from, valid_to = words.text_or_none("valid_from"), words.text_or_none("valid_to")
    return frames.Opened(
        channel=channel,
        credit_records=words.count("credit_records"),
        credit_bytes=words.count("credit_bytes"),
        columns=decode_schema(words.rest, offset=words.rest_offset, may_have_lists=True),
        key=words.texts("key"),
        versions=None if valid_from is None else VersionColumns(valid_from, valid_to),
        waits=words.truth_if_told("waits"),
    )


def _decode_failure(channel: int, words: FrameDescription) -> frames.Failure:
    return frames.Failure(
        channel=channel,
        code=words.text("code"),
        detail=words.text("detail"),
        is_retryable=words.truth("retryable"),
    )


def _decode_goaway(_: int, words: FrameDescription) -> frames.Goaway:
    return frames.Goaway(words.text("reason"))


_DECODERS: dict[FrameKind, Callable[[int, FrameDescription], DescribedFrame]] = {
    FrameKind.HELLO: _decode_hello,
    FrameKind.WELCOME: _decode_welcome,
    FrameKind.OPEN: _decode_open,
    FrameKind.OPENED: _decode_opened,
    FrameKind.ERROR: _decode_failure,
    FrameKind.GOAWAY: _decode_goaway,
}
_WITH_SCHEMA = {FrameKind.OPEN, FrameKind.OPENED}
