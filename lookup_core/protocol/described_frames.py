"""The frames that describe themselves in words: what follows their header, to bytes and back.

Which words each kind has, and whether a schema follows them; the header is `frame_codec`'s.
"""

from collections.abc import Callable
from typing import assert_never

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from lookup_core.protocol.frame_description import (
    FrameDescription,
    decode_description,
    encode_description,
)
from lookup_core.protocol.frames import FrameKind
from lookup_core.trace_parent import TraceParent
from lookup_core.version_columns import VersionColumns

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
