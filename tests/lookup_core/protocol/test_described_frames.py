"""Frames that describe themselves: what their words are; the whole frame is the codec's test."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.described_frames import (
    DescribedFrame,
    decode_described,
    encode_described,
)
from lookup_core.protocol.frames import FrameKind
from lookup_core.protocol.trace_parent import TraceParent

KEY = pa.schema({"id": pa.int64()})
OPEN = frames.Open(7, "d", ("name",), "a test", KEY)
OPENED = frames.Opened(7, 1, 2, KEY, ("id",))


def words(frame: DescribedFrame) -> dict[str, object]:
    """The words of a frame."""
    body = encode_described(frame)
    told: dict[str, object] = json.loads(body[4 : 4 + int.from_bytes(body[:4], "little")])
    return told


def test_lookups_without_a_time_say_nothing_of_it() -> None:
    """To whom versions are unknown, a frame is what it always was."""
    assert words(OPEN) == {"dimension": "d", "columns": ["name"], "origin": "a test"}
    assert words(OPENED) == {"credit_records": 1, "credit_bytes": 2, "key": ["id"]}


def test_versions_are_told_by_name() -> None:
    """The client asks for them, the service says which columns tell when they are valid."""
    asking = frames.Open(7, "d", ("name",), "a test", KEY, is_as_of=True)
    told = frames.Opened(7, 1, 2, KEY, ("id",), VersionColumns("since"))

    assert words(asking) == {**words(OPEN), "as_of": True}
    assert words(told) == {**words(OPENED), "valid_from": "since", "valid_to": None}


def test_waiting_is_told_where_it_is_done() -> None:
    """And by nobody else, so that their frames are what they always were."""
    assert words(replace(OPENED, waits=True)) == {**words(OPENED), "waits": True}


def test_traces_are_told_where_there_is_one() -> None:
    """Services that know nothing of them see two members more, which they must ignore."""
    trace = TraceParent(f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1")
    told = {"traceparent": trace.traceparent, "tracestate": "vendor=1"}

    assert words(replace(OPEN, trace=trace)) == {**words(OPEN), **told}


def test_nothing_follows_the_words() -> None:
    """What stands behind a description, where no schema may, is refused with its byte."""
    body = memoryview(encode_described(frames.Goaway("x")) + b"!")

    with pytest.raises(ProtocolViolation, match="something follows") as caught:
        decode_described(FrameKind.GOAWAY, body, channel=0, offset=16)

    assert caught.value.offset == 16 + len(body) - 1
