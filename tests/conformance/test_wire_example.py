"""The conversation in docs/wire_protocol.md is what the codec says and what the service does."""

import struct

import pytest

from lookup_core.errors import unknown_dimension
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import ROWLESS, decode_batch, result_schema
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame, FrameKind
from tests.conformance.wire_blocks import WireBlock, wire_blocks
from tests.service.stream.streaming import Peer, streaming

BLOCKS = wire_blocks()


def first(kind: type[Frame]) -> Frame:
    """The first frame of a kind in the conversation."""
    return next(frame for block in BLOCKS if isinstance(frame := decode_frame(block.message), kind))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_bytes_are_those_of_the_codec(block: WireBlock) -> None:
    """Each block decodes to a frame of its kind, which has exactly these bytes."""
    frame = decode_frame(block.message)

    assert encode_frame(frame) == block.message
    kind = FrameKind(block.message[0])
    assert (block.name, block.sender) == (kind.name, "client" if kind < 64 else "service")


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_comments_tell_what_stands_there(block: WireBlock) -> None:
    """The first line is the header, and says its kind and its channel; lengths are those meant."""
    (header, comment), *rest = block.comments
    kind, _, _, channel, _ = struct.unpack("<BBHIQ", header)

    assert comment.startswith(f"kind {kind}")
    assert f"channel {channel}" in comment
    for line, words in rest:
        if words.endswith("bytes of description"):
            assert struct.unpack("<I", line) == (int(words.split()[0]),)


def test_every_kind_is_shown() -> None:
    """The conversation leaves no kind of frame out."""
    assert {block.name for block in BLOCKS} == {kind.name for kind in FrameKind}


def test_payloads_are_as_told() -> None:
    """The keys asked for, and what came back for them."""
    opening, opened, lookup = first(frames.Open), first(frames.Opened), first(frames.Lookup)
    assert isinstance(opening, frames.Open)
    assert isinstance(opened, frames.Opened)
    assert isinstance(lookup, frames.Lookup)
    results = [decode_frame(block.message) for block in BLOCKS if block.name == "RESULT"]

    keys = decode_batch(lookup.payload, opening.key)
    with_row, without = [
        decode_batch(each.payload, result_schema(opened.columns) if each.has_rows else ROWLESS)
        for each in results
        if isinstance(each, frames.Result)
    ]

    assert keys.to_pydict() == {"id": [7, 5]}
    assert with_row.to_pydict() == {"position": [0], "outcome": [1], "age_ms": [0], "name": ["Ada"]}
    assert without.to_pydict() == {"position": [1], "outcome": [2], "age_ms": [0], "error": [None]}


def test_refusal_is_worded_as_told() -> None:
    """The refusal of a dimension that there is not has the service's own words."""
    failure = first(frames.Failure)
    assert isinstance(failure, frames.Failure)

    refusal = unknown_dimension("nowhere", ["customers"])

    assert (failure.code, failure.detail) == (refusal.code, refusal.detail)


async def test_service_answers_as_written() -> None:
    """Sent as it stands, the client's side gets the kinds of frames that are written behind it."""
    told: list[str] = []
    async with streaming() as service:
        peer = await service.connect()
        for block in BLOCKS:
            if block.name == "GOAWAY":
                continue  # the service of the tests does not stop here
            if block.sender == "client":
                await peer.socket.send_bytes(block.message)
            else:
                told.append(await _kind_of_next(peer))

    expected = [block.name for block in BLOCKS if block.sender == "service"]
    assert told == [name for name in expected if name != "GOAWAY"]


async def _kind_of_next(peer: Peer) -> str:
    message = await peer.socket.receive_bytes(timeout=10.0)
    return FrameKind(message[0]).name
