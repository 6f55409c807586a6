"""Frames on the wire: round trips, fixed layout, and refused bytes."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_schema
from lookup_core.protocol.frame_codec import (
    HEADER,
    MAX_DESCRIPTION_BYTES,
    decode_frame,
    encode_frame,
)
from lookup_core.protocol.frames import Frame, FrameKind, TraceParent

KEY = pa.schema({"origin": pa.utf8(), "hour": pa.timestamp("us", "UTC")})
LISTS = pa.schema({"names": pa.list_(pa.utf8()), "at": pa.list_(pa.timestamp("us", "UTC"))})
OPEN = frames.Open(7, "weather", ("temp", "wind"), "job 1, stage 2", KEY)
HELLO = frames.Hello((1, 2), "spark_client/0.1 (é)")
FAILURE = frames.Failure(7, "timeout", "", is_retryable=True)
OPENED = frames.Opened(7, 1, 2, LISTS, ("origin", "hour"))
OPTIONS = LookupOptions(0, 2**53 - 1, 250, "tëmp")
TRACE = TraceParent(f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1")
FRAMES: list[Frame] = [
    HELLO,
    frames.Welcome(1, "sidelook/0.1"),
    OPEN,
    replace(OPEN, columns=None, origin=""),
    replace(OPEN, is_as_of=True),
    replace(OPEN, trace=TRACE),
    replace(OPEN, trace=TraceParent("not a trace")),
    replace(OPEN, options=OPTIONS),
    replace(OPENED, options=LookupOptions(max_age_ms=9)),
    replace(OPEN, wants_default=True, wants_reasons=True),
    frames.Opened(7, 20_000, 2**53 - 1, KEY, ("origin", "hour")),
    frames.Opened(7, 0, 0, pa.schema([]), ()),
    OPENED,
    replace(OPENED, versions=VersionColumns("at", "until"), waits=True),
    replace(OPENED, versions=VersionColumns("at")),
    replace(OPENED, has_all_rows=True, default=b"\0row"),
    replace(OPENED, cache="/run/é/cache/1"),
    frames.Lookup(7, 1, 5_000, 20_000, b"keys", -(2**63)),
    frames.Lookup(7, 1, 5_000, 20_000, b"", 2**63 - 1),
    frames.Lookup(7, 2**63 - 1, 5_000, 20_000, b"keys"),
    frames.Lookup(7, 1, 2**32 - 1, 0, b""),
    frames.Result(7, 1, is_last=True, has_rows=True, payload=b"rows"),
    frames.Result(7, 1, is_last=False, has_rows=True, payload=b"rows"),
    frames.Result(7, 1, is_last=True, has_rows=False, payload=b""),
    frames.Credit(2**32 - 1, 2**32 - 1, 2**64 - 1),
    frames.Watermark(7, -(2**63)),
    frames.Watermark(7, 2**63 - 1),
    frames.Status(7, is_idle=True),
    frames.Status(7, is_idle=False),
    frames.Cancel(7, 9),
    frames.Cached(7, 2**40 - 2, 1, 1, visited=b"\1\0\0\0\xff\xff\xff\xff"),
    frames.Cached(7, 0, 0, 0, visited=b""),
    frames.Close(7),
    frames.Closed(7),
    frames.Failure(0, "internal", "…", is_retryable=False),
    frames.Reason(7, "value_rejected", "column é"),
    frames.Failure(7, "draining", "the sidecar stops", is_retryable=True),
    frames.Goaway("the sidecar stops"),
]
MESSAGES = [encode_frame(frame) for frame in FRAMES]
BY_KIND = {FrameKind(message[0]): message for message in MESSAGES}
# All bytes behind the fixed part are payload; of CACHED, all slots.
WITH_PAYLOAD = (frames.Lookup, frames.Result, frames.Cached)
WITH_SEQUENCE = {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}
OF_CONNECTION = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
FLAGS = {FrameKind.LOOKUP: 1, FrameKind.RESULT: 3, FrameKind.STATUS: 1}
NO_JSON = "the description is not JSON"
NO_COUNTS = [None, True, 1.0, "1", -1, 2**53]


def violation(message: bytes) -> tuple[str, int | None]:
    """Why a message is refused, and the offset of the byte."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_frame(message)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail.partition(" (at byte")[0], caught.value.offset


def header(kind: FrameKind, *, channel: int = 7, **numbers: int) -> bytes:
    """The header of this kind; `flags`, `reserved` and `sequence` are 0 unless given."""
    names = ("flags", "reserved", "channel", "sequence")
    return HEADER.pack(kind, *(({"channel": channel} | numbers).get(name, 0) for name in names))


def words(frame: Frame) -> dict[str, Any]:
    """The description of a frame."""
    body = encode_frame(frame)[HEADER.size :]
    found: dict[str, Any] = json.loads(body[4 : 4 + int.from_bytes(body[:4], "little")])
    return found


def in_json(members: dict[str, object]) -> bytes:
    """The body of a frame with these members."""
    return described(json.dumps(members).encode())


def described(text: bytes, *, length: int | None = None) -> bytes:
    """The body of a frame with this text as its description."""
    return (len(text) if length is None else length).to_bytes(4, "little") + text


@pytest.mark.parametrize("frame", FRAMES, ids=repr)
def test_frame_survives_the_wire(frame: Frame) -> None:
    """Each kind of frame is the same after the wire, also at the bounds of its numbers."""
    assert decode_frame(encode_frame(frame)) == frame


def test_each_kind_is_tested() -> None:
    """The frames of this module have all kinds, and the kinds have the numbers of the protocol."""
    client = ["HELLO", "OPEN", "LOOKUP", "WATERMARK", "STATUS", "CANCEL", "CLOSE", "CACHED"]
    service = ["WELCOME", "OPENED", "CREDIT", "RESULT", "ERROR", "CLOSED", "GOAWAY", "REASON"]

    assert {kind.name: kind.value for kind in BY_KIND} == {
        name: number
        for names, first in ((client, 1), (service, 65))
        for number, name in enumerate(names, first)
    }


@pytest.mark.parametrize(
    ("frame", "head", "rest"),
    [
        (frames.Watermark(258, -2), "04000000 02010000 00000000 00000000", "fe" + "ff" * 7),
        (frames.Credit(1, 5, 6), "43000000 01000000 00000000 00000000", "05000000 06" + "00" * 7),
        (
            frames.Lookup(1, 3, 5, 6, b"!"),
            "03000000 01000000 03" + "00" * 7,
            "05000000 06000000 21",
        ),
        (
            frames.Lookup(1, 3, 5, 6, b"!", -2),
            "03010000 01000000 03" + "00" * 7,
            "05000000 06000000 fe" + "ff" * 7 + "21",
        ),
        (frames.Result(1, 3, *(True, False), b"!"), "44010000 01000000 03" + "00" * 7, "21"),
        (frames.Result(1, 3, *(False, True), b"!"), "44020000 01000000 03" + "00" * 7, "21"),
        (
            frames.Cached(1, 2, 3, 4, b"\5\0\0\0"),
            "08000000 01000000 00000000 00000000",
            "02" + "00" * 7 + "03" + "00" * 7 + "04" + "00" * 7 + "05000000",
        ),
        (frames.Status(1, is_idle=True), "05010000 01000000 00000000 00000000", ""),
        (frames.Goaway("x"), "47" + "00" * 15, "0e000000" + b'{"reason":"x"}'.hex()),
    ],
)
def test_layout_is_fixed(frame: Frame, head: str, rest: str) -> None:
    """The bytes of a frame are fixed and little-endian."""
    assert encode_frame(frame) == bytes.fromhex(head + rest)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (OPEN, {}),
        (replace(OPEN, is_as_of=True), {"as_of": True}),
        (
            replace(OPEN, trace=TRACE),
            {"traceparent": TRACE.traceparent, "tracestate": TRACE.tracestate},
        ),
        (
            replace(OPEN, options=OPTIONS),
            {
                "max_age_ms": 0,
                "max_retries": 2**53 - 1,
                "retry_delay_ms": 250,
                "retry_if": "tëmp",
            },
        ),
        (replace(OPEN, wants_default=True), {"default": True}),
        (replace(OPEN, wants_reasons=True), {"reasons": True}),
        (OPENED, {}),
        (replace(OPENED, options=LookupOptions(max_age_ms=9)), {"max_age_ms": 9}),
        (replace(OPENED, waits=True), {"waits": True}),
        (replace(OPENED, has_all_rows=True), {"all_rows": True}),
        (replace(OPENED, default=b"\0row"), {"default": "AHJvdw=="}),
        (replace(OPENED, cache="/run/c/1"), {"cache": "/run/c/1"}),
        (
            replace(OPENED, versions=VersionColumns("since")),
            {"valid_from": "since", "valid_to": None},
        ),
    ],
)
def test_optional_members_are_omitted(frame: Frame, expected: dict[str, object]) -> None:
    """A member for a feature that is not used is not written."""
    required: dict[str, object] = (
        {"dimension": "weather", "columns": ["temp", "wind"], "origin": "job 1, stage 2"}
        if isinstance(frame, frames.Open)
        else {"credit_records": 1, "credit_bytes": 2, "key": ["origin", "hour"]}
    )

    assert words(frame) == required | expected


def test_members_may_be_more_or_fewer() -> None:
    """A description may have unknown members, in any order; an OPEN without `columns` means all."""
    hello = in_json({"a later one": [1], "agent": "x", "versions": [1, 7]})
    opening = in_json({"dimension": "d", "origin": ""})

    found = header(FrameKind.HELLO, channel=0) + hello
    all_columns = header(FrameKind.OPEN) + opening + encode_schema(KEY)

    assert decode_frame(found) == frames.Hello((1, 7), "x")
    assert decode_frame(all_columns) == frames.Open(7, "d", None, "", KEY)


def test_payload_is_not_copied() -> None:
    """The payload of a decoded frame is a view of the message."""
    message = encode_frame(frames.Lookup(7, 1, 5_000, 0, b"keys"))

    lookup = decode_frame(message)

    assert isinstance(lookup, frames.Lookup)
    assert isinstance(lookup.payload, memoryview)
    assert lookup.payload.obj is message


@pytest.mark.parametrize(
    ("message", "detail", "offset"),
    [
        *(
            (MESSAGES[0][:size], f"a frame has at least 16 bytes, this one has {size}", 0)
            for size in (0, 1, 15)
        ),
        *(
            (HEADER.pack(kind, 0, 0, 7, 0), f"unknown frame kind {kind}", 0)
            for kind in (0, 9, 64, 73, 255)
        ),
        *(
            (header(kind, flags=1 << bit), f"{kind.name} has unknown flags", 1)
            for kind in FrameKind
            for bit in range(8)
            if not FLAGS.get(kind, 0) >> bit & 1
        ),
        *(
            (header(kind, reserved=reserved), "the reserved field must be 0", 2)
            for kind in FrameKind
            for reserved in (1, 2**15)
        ),
        *(
            (header(kind, channel=0), f"{kind.name} needs a channel", 4)
            for kind in set(FrameKind) - OF_CONNECTION - {FrameKind.ERROR}
        ),
        *(
            (header(kind, channel=1), f"{kind.name} concerns the connection, not a channel", 4)
            for kind in OF_CONNECTION
        ),
        *(
            (header(kind, channel=channel, sequence=5), f"{kind.name} has no sequence", 8)
            for kinds, channel in ((OF_CONNECTION, 0), (set(FrameKind) - OF_CONNECTION, 7))
            for kind in kinds - WITH_SEQUENCE
        ),
        *(
            (header(kind, sequence=sequence), "the sequence is beyond 2**63 - 1", 8)
            for kind in WITH_SEQUENCE
            for sequence in (2**63, 2**64 - 1)
        ),
        *(
            (
                header(FrameKind.LOOKUP, flags=1) + bytes(size),
                f"expected 16 bytes, got {size}",
                16 + size,
            )
            for size in (0, 8, 15)
        ),
    ],
)  # fmt: skip
def test_bad_headers_are_refused(message: bytes, detail: str, offset: int) -> None:
    """A wrong field of the header is refused, with its offset."""
    assert violation(message) == (detail, offset)


@pytest.mark.parametrize("frame", FRAMES, ids=repr)
def test_truncated_frames_are_refused(frame: Frame) -> None:
    """A frame that ends too early is refused at every length; only payloads have any length."""
    message = encode_frame(frame)
    fixed = HEADER.size + {frames.Lookup: 8, frames.Cached: 24}.get(type(frame), 0)
    end = fixed if isinstance(frame, WITH_PAYLOAD) else len(message)

    offsets = {size: violation(message[:size])[1] for size in range(HEADER.size, end)}

    assert all(offset is not None and offset <= size for size, offset in offsets.items())


@pytest.mark.parametrize("frame", [each for each in FRAMES if type(each) not in WITH_PAYLOAD])
def test_bytes_behind_frame_are_refused(frame: Frame) -> None:
    """Bytes behind the end of a frame are refused, with the offset of its last part."""
    message = encode_frame(frame)
    schema = frame.key if isinstance(frame, frames.Open) else getattr(frame, "columns", None)

    _, offset = violation(message + b"\0")

    assert offset == len(message) - (0 if schema is None else len(encode_schema(schema)))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_slots_are_whole(size: int) -> None:
    """The slots of a CACHED have four bytes each."""
    message = encode_frame(frames.Cached(7, 1, 0, 0, visited=bytes(size)))

    assert violation(message) == ("slots have 4 bytes each", 40)


@pytest.mark.parametrize("counts", [(2**40 + 1, 0, 0), (2**40, 1, 0), (0, 0, 2**64 - 1)])
def test_cached_keys_are_bounded(counts: tuple[int, int, int]) -> None:
    """A CACHED that reports more keys than any worker can look up in a second is refused."""
    message = encode_frame(frames.Cached(7, *counts, visited=b""))

    assert violation(message) == (f"CACHED reports more than {2**40} keys", 16)


def test_bad_schema_has_its_offset() -> None:
    """Bytes that are no schema are refused, with their offset in the frame."""
    description = in_json({"credit_records": 1, "credit_bytes": 1, "key": []})

    message = header(FrameKind.OPENED) + description + b"no schema"

    assert violation(message) == ("an Arrow message was expected", 16 + len(description))


def test_keys_hold_no_lists() -> None:
    """Lists are allowed in answers, not in keys."""
    detail, _ = violation(encode_frame(replace(OPEN, key=LISTS)))

    assert detail == "field 'names' has type list<item: string>; only flat types are allowed"


@pytest.mark.parametrize(
    ("body", "detail", "offset"),
    [
        (b"", "the frame ends too early", 16),
        (b"\2\0\0", "the frame ends too early", 19),
        (described(b"{", length=2), "the description is longer than the frame or its limit", 16),
        (described(b"[]"), "the description must be a JSON object", 20),
        (described(b""), NO_JSON, 20),
        (described(b"{]"), NO_JSON, 20),
        (described(b'{"a": "\xff"}'), NO_JSON, 20),
        (described('{"a": 1}'.encode("utf-16")), NO_JSON, 20),
        (described(rb'{"a": "\ud800"}'), NO_JSON, 20),
        (described(b'{"a": ' + b"[" * 60_000), NO_JSON, 20),
        (described(b'{"a": ' + b"9" * 60_000 + b"}"), NO_JSON, 20),
    ],
)
def test_bad_descriptions_are_refused(body: bytes, detail: str, offset: int) -> None:
    """A description that is not a JSON object in UTF-8 is refused, with the offset."""
    assert violation(header(FrameKind.GOAWAY, channel=0) + body) == (detail, offset)


def test_size_of_description_is_bounded() -> None:
    """A description of 64 KiB is read, one byte more is refused."""
    reason = "x" * (MAX_DESCRIPTION_BYTES - len(json.dumps({"reason": ""})))
    largest = json.dumps({"reason": reason}).encode()
    goaway = header(FrameKind.GOAWAY, channel=0)
    assert len(largest) == MAX_DESCRIPTION_BYTES

    assert decode_frame(goaway + described(largest)) == frames.Goaway(reason)
    with pytest.raises(ProtocolViolation):
        decode_frame(goaway + described(largest + b" "))


@pytest.mark.parametrize(
    ("frame", "member", "wanted", "values"),
    [
        (OPEN, "dimension", "a string", [None, 1, ["a"]]),
        (OPENED, "cache", "a string", [1, ["a"]]),
        (FAILURE, "retryable", "true or false", [None, 1, "true"]),
        (OPEN, "as_of", "true or false", [1, "true"]),
        (OPENED, "credit_bytes", "an integer from 0 to 2**53 - 1", NO_COUNTS),
        (OPEN, "max_age_ms", "an integer from 0 to 2**53 - 1", [-1, "1", 1.5, True]),
        (
            HELLO,
            "versions",
            "a list of integers from 0 to 2**53 - 1",
            [None, 1, *([each] for each in NO_COUNTS)],
        ),
        (OPENED, "key", "a list of strings", [None, "a", [1], [None], {}]),
        (OPEN, "columns", "a list of strings", ["a", [1], [None], {}]),
        (OPENED, "default", "base64", ["a", "ab=c", "é", "AHJv\n"]),
    ],
)
def test_other_types_are_refused(
    frame: Frame, member: str, wanted: str, values: list[object]
) -> None:
    """A member of another type is refused with its name; no value is converted."""
    head = encode_frame(frame)[: HEADER.size]
    schema = encode_schema(KEY) if isinstance(frame, frames.Open | frames.Opened) else b""
    for value in values:
        found = violation(head + in_json(words(frame) | {member: value}) + schema)

        assert found == (f"the description's {member!r} must be {wanted}", 20)
