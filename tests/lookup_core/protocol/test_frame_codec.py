"""Frames to bytes and back: each kind survives, and whatever else comes is a bad frame."""

import struct

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_schema
from lookup_core.protocol.described_frames import encode_description
from lookup_core.protocol.frame_codec import HEADER, decode_frame, encode_frame
from lookup_core.protocol.frames import Frame, FrameKind
from lookup_core.protocol.trace_parent import TraceParent

KEY = pa.schema({"origin": pa.utf8(), "hour": pa.timestamp("us", "UTC")})
LISTS = pa.schema({"names": pa.list_(pa.utf8()), "at": pa.list_(pa.timestamp("us", "UTC"))})
ONE_OF_EACH: list[Frame] = [
    frames.Hello((1, 2), "spark_client/0.1 (é)"),
    frames.Welcome(1, "sidelook/0.1"),
    frames.Open(7, "weather", ("temp", "wind"), "job 1, stage 2", KEY),
    frames.Open(7, "weather", None, "", KEY),
    frames.Open(7, "weather", None, "", KEY, is_as_of=True),
    frames.Open(7, "weather", None, "", KEY, trace=TraceParent("00-a-b-01", "vendor=1")),
    frames.Open(7, "weather", None, "", KEY, trace=TraceParent("not a trace")),
    frames.Opened(7, 20_000, 2**40, KEY, ("origin", "hour")),
    frames.Opened(7, 0, 0, pa.schema([]), ()),
    frames.Opened(7, 1, 1, LISTS, ("origin", "hour")),
    frames.Opened(7, 1, 1, LISTS, ("origin", "hour"), VersionColumns("at", "until")),
    frames.Opened(7, 1, 1, LISTS, ("origin", "hour"), VersionColumns("at")),
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
    frames.Close(7),
    frames.Closed(7),
    frames.Failure(0, "internal", "…", is_retryable=False),
    frames.Failure(7, "draining", "the sidecar stops", is_retryable=True),
    frames.Goaway("the sidecar stops"),
]
EXAMPLES = [encode_frame(frame) for frame in ONE_OF_EACH]
PREFIXED = (frames.Lookup, frames.Result)  # what follows the fixed part is their payload
BY_KIND = {FrameKind(message[0]): message for message in EXAMPLES}


def violation(message: bytes) -> tuple[str, int | None]:
    """Why a message is refused, and the byte where."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_frame(message)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail.partition(" (at byte")[0], caught.value.offset


@pytest.mark.parametrize("frame", ONE_OF_EACH, ids=repr)
def test_frame_survives_the_wire(frame: Frame) -> None:
    """Each frame comes out as it went in, at the bounds of its numbers, too."""
    assert decode_frame(encode_frame(frame)) == frame


def test_each_kind_is_tried() -> None:
    """The examples of these tests leave no kind of frame out."""
    assert set(BY_KIND) == set(FrameKind)


@pytest.mark.parametrize(
    ("frame", "header", "rest"),
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
        (frames.Status(1, is_idle=True), "05010000 01000000 00000000 00000000", ""),
        (frames.Goaway("x"), "47" + "00" * 15, "0e000000" + b'{"reason":"x"}'.hex()),
    ],
)
def test_bytes_are_those_of_the_protocol(frame: Frame, header: str, rest: str) -> None:
    """The layout is fixed and little-endian, so that clients in other languages can speak it."""
    assert encode_frame(frame) == bytes.fromhex(header + rest)


@pytest.mark.parametrize("size", range(HEADER.size))
def test_header_must_be_whole(size: int) -> None:
    """A message shorter than a header is no frame."""
    detail = f"a frame has at least 16 bytes, this one {size}"

    assert violation(EXAMPLES[0][:size]) == (detail, 0)


@pytest.mark.parametrize("kind", sorted(set(range(256)) - set(FrameKind)))
def test_unknown_kind_is_refused(kind: int) -> None:
    """A kind of frame that this version does not know ends the connection."""
    assert violation(HEADER.pack(kind, 0, 0, 7, 0)) == (f"unknown frame kind {kind}", 0)


@pytest.mark.parametrize("kind", FrameKind)
def test_unknown_flags_are_refused(kind: FrameKind) -> None:
    """Flags mean something in some kinds only, and only those that are defined."""
    known = {FrameKind.LOOKUP: 1, FrameKind.RESULT: 3, FrameKind.STATUS: 1}.get(kind, 0)
    message = BY_KIND[kind]

    for bit in range(8):
        if not known >> bit & 1:
            changed = message[:1] + bytes([message[1] | 1 << bit]) + message[2:]
            assert violation(changed) == (f"{kind.name} has other flags", 1)


@pytest.mark.parametrize("message", EXAMPLES)
def test_reserved_field_is_zero(message: bytes) -> None:
    """What later versions may use must be zero now."""
    for reserved in (1, 2**15):
        changed = message[:2] + reserved.to_bytes(2, "little") + message[4:]
        assert violation(changed) == ("the reserved field must be 0", 2)


@pytest.mark.parametrize("kind", FrameKind)
def test_channel_fits_the_kind(kind: FrameKind) -> None:
    """Some frames concern the connection, some a channel; only ERROR either."""
    of_connection = {FrameKind.HELLO, FrameKind.WELCOME, FrameKind.GOAWAY}
    channel, detail = 0, f"{kind.name} needs a channel"
    if kind in of_connection:
        channel, detail = 1, f"{kind.name} concerns the connection, not a channel"
    message = BY_KIND[kind][:4] + channel.to_bytes(4, "little") + BY_KIND[kind][8:]

    if kind is FrameKind.ERROR:
        assert isinstance(decode_frame(message), frames.Failure)
    else:
        assert violation(message) == (detail, 4)


@pytest.mark.parametrize("kind", FrameKind)
def test_sequence_fits_the_kind(kind: FrameKind) -> None:
    """Only what belongs to one lookup has a sequence."""
    message = BY_KIND[kind][:8] + struct.pack("<Q", 5) + BY_KIND[kind][16:]

    if kind in {FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL}:
        assert getattr(decode_frame(message), "sequence", None) == 5
    else:
        assert violation(message) == (f"{kind.name} has no sequence", 8)


@pytest.mark.parametrize("kind", [FrameKind.LOOKUP, FrameKind.RESULT, FrameKind.CANCEL])
@pytest.mark.parametrize("sequence", [2**63, 2**64 - 1])
def test_sequence_does_not_wrap(kind: FrameKind, sequence: int) -> None:
    """Sequences from 2**63 are refused: none that counts from 1 ever comes there."""
    message = BY_KIND[kind][:8] + struct.pack("<Q", sequence) + BY_KIND[kind][16:]

    assert violation(message) == ("the sequence is beyond 2**63 - 1", 8)


@pytest.mark.parametrize("frame", ONE_OF_EACH, ids=repr)
def test_truncated_frame_is_refused(frame: Frame) -> None:
    """A frame that ends too early is refused wherever it ends; only payloads have any length."""
    message = encode_frame(frame)
    fixed = HEADER.size + (8 if isinstance(frame, frames.Lookup) else 0)
    end = fixed if isinstance(frame, PREFIXED) else len(message)

    for size in range(HEADER.size, end):
        _, offset = violation(message[:size])
        assert offset is not None
        assert offset <= size


@pytest.mark.parametrize("frame", [each for each in ONE_OF_EACH if not isinstance(each, PREFIXED)])
def test_nothing_follows_a_frame(frame: Frame) -> None:
    """Bytes behind the end of a frame are refused, with the byte where they start."""
    message = encode_frame(frame)

    _, offset = violation(message + b"\0")

    assert offset == len(message) - len(_schema_of(frame))


def test_schema_error_names_its_byte() -> None:
    """A schema that is none is refused with the byte where it stands in the frame."""
    words = encode_description({"credit_records": 1, "credit_bytes": 1, "key": []})

    message = HEADER.pack(FrameKind.OPENED, 0, 0, 7, 0) + words + b"no schema"

    assert violation(message) == ("an Arrow message was expected", 16 + len(words))


def test_lists_are_no_keys() -> None:
    """What a key may be answered with it may not consist of."""
    why, _ = violation(encode_frame(frames.Open(7, "weather", None, "", LISTS)))

    assert why == "field 'names' has type list<item: string>; only flat types may travel"


def test_unknown_members_are_ignored() -> None:
    """A peer of the same version may say more than this one knows, and in another order."""
    words = {"a later one": [1], "agent": "x", "versions": [1, 7]}

    message = HEADER.pack(FrameKind.HELLO, 0, 0, 0, 0) + encode_description(words)

    assert decode_frame(message) == frames.Hello((1, 7), "x")


def test_no_columns_are_all_columns() -> None:
    """An OPEN that says nothing of columns wants all that there are."""
    words = encode_description({"dimension": "d", "origin": ""})

    message = HEADER.pack(FrameKind.OPEN, 0, 0, 7, 0) + words + encode_schema(KEY)

    assert decode_frame(message) == frames.Open(7, "d", None, "", KEY)


@pytest.mark.parametrize("size", [0, 8, 15])
def test_event_time_must_be_whole(size: int) -> None:
    """A LOOKUP that says it has an event time has all its bytes."""
    message = encode_frame(frames.Lookup(7, 1, 5_000, 0, b"", 1))[: HEADER.size + size]

    assert violation(message) == (f"16 bytes were expected, not {size}", HEADER.size + size)


def test_payload_is_not_copied() -> None:
    """The payload of a frame is a view of the message: it is read where it was received."""
    message = encode_frame(frames.Lookup(7, 1, 5_000, 0, b"keys"))

    lookup = decode_frame(message)

    assert isinstance(lookup, frames.Lookup)
    assert isinstance(lookup.payload, memoryview)
    assert lookup.payload.obj is message


@given(st.binary(max_size=80))
@example(b"")
def test_garbage_fails_cleanly(message: bytes) -> None:
    """Whatever bytes come, they are refused or are a frame; nothing else is ever raised."""
    _decode_or_refuse(message)


@given(st.data())
def test_mutated_frames_fail_cleanly(data: st.DataObject) -> None:
    """Changed bytes in real frames are refused, or make another frame that has its own bytes."""
    message = bytearray(data.draw(st.sampled_from(EXAMPLES)))
    places = st.integers(0, len(message) - 1)
    for at, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3)):
        message[at] = value
    del message[data.draw(st.integers(1, len(message))) :]

    _decode_or_refuse(bytes(message))


def _schema_of(frame: Frame) -> bytes:
    match frame:
        case frames.Open():
            return encode_schema(frame.key)
        case frames.Opened():
            return encode_schema(frame.columns)
        case _:
            return b""


def _decode_or_refuse(message: bytes) -> None:
    try:
        frame = decode_frame(message)
    except ProtocolViolation:
        return
    assert decode_frame(encode_frame(frame)) == frame
