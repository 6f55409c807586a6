"""docs/reference/wire-protocol.md agrees with the codec, the service and the error codes."""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode, InvalidRequest, named_dimension
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import ROWLESS, decode_batch, result_schema
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame, FrameKind
from tests.service.stream.streaming import streaming

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "wire-protocol.md").read_text()
BLOCK = re.compile(r"^```wire\n(client|service): ([A-Z]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_REFUSALS = {
    *(ErrorCode.BAD_REQUEST, ErrorCode.KEY_TYPE),
    *(ErrorCode.UNKNOWN_COLUMN, ErrorCode.UNKNOWN_DIMENSION),
}
# Codes of neither RESULT nor ERROR: a new code is in the lists of the document, or named here.
ELSEWHERE = {
    *(ErrorCode.KEY_TOO_LARGE, ErrorCode.SIDECAR_UNREACHABLE),  # found by the client, never sent
    *(ErrorCode.BAD_JSON, ErrorCode.BAD_ARROW, ErrorCode.TOO_MANY_KEYS, ErrorCode.DRAINING),  # HTTP
    *(ErrorCode.ANSWER_TOO_LARGE, ErrorCode.UNAUTHORIZED),  # HTTP, too
    *(ErrorCode.BAD_FRAME, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CREDIT_VIOLATION),  # closes
    *(ErrorCode.SEQUENCE_GAP, ErrorCode.UNKNOWN_CHANNEL),
}


@dataclass(frozen=True, slots=True)
class WireBlock:
    """One frame of the conversation in the document."""

    sender: str  # client or service
    name: str  # of the kind
    message: bytes
    comments: tuple[tuple[bytes, str], ...]  # the bytes of a line, and its comment


def wire_block(sender: str, name: str, text: str) -> WireBlock:
    """The frame that is written as hex, with comments behind `#`."""
    lines = [line.partition("#") for line in text.splitlines()]
    comments = tuple((bytes.fromhex(hexed), comment.strip()) for hexed, _, comment in lines)
    return WireBlock(sender, name, b"".join(given for given, _ in comments), comments)


BLOCKS = [wire_block(*found) for found in BLOCK.findall(DOCUMENT)]
EACH_BLOCK = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)


def first(kind: type[Frame]) -> Frame:
    """The first frame of a kind in the conversation."""
    return next(frame for block in BLOCKS if isinstance(frame := decode_frame(block.message), kind))


@EACH_BLOCK
def test_bytes_are_those_of_the_codec(block: WireBlock) -> None:
    """Each block is a frame of its kind with exactly these bytes."""
    kind = FrameKind(block.message[0])

    assert encode_frame(decode_frame(block.message)) == block.message
    assert (block.name, block.sender) == (kind.name, "client" if kind < 64 else "service")


@EACH_BLOCK
def test_comments_match_the_bytes(block: WireBlock) -> None:
    """The comments state kind, channel and lengths of the bytes."""
    (header, comment), *rest = block.comments
    kind, _, _, channel, _ = struct.unpack("<BBHIQ", header)

    assert comment.startswith(f"kind {kind}")
    assert f"channel {channel}" in comment
    lengths = [(line, words) for line, words in rest if words.endswith("bytes of description")]
    assert [struct.unpack("<I", line) for line, _ in lengths] == [
        (int(words.split()[0]),) for _, words in lengths
    ]


def test_every_kind_is_shown() -> None:
    """The conversation has all kinds of frames."""
    assert {block.name for block in BLOCKS} == {kind.name for kind in FrameKind}


def test_payloads_match_the_text() -> None:
    """The lookup of the conversation has its keys, and the results have their rows."""
    opening, opened, lookup = first(frames.Open), first(frames.Opened), first(frames.Lookup)
    assert isinstance(opening, frames.Open)
    assert isinstance(opened, frames.Opened)
    assert isinstance(lookup, frames.Lookup)

    keys = decode_batch(lookup.payload, opening.key)
    with_row, without = [
        decode_batch(each.payload, result_schema(opened.columns) if each.has_rows else ROWLESS)
        for block in BLOCKS
        if isinstance(each := decode_frame(block.message), frames.Result)
    ]

    assert keys.to_pydict() == {"id": [7, 5]}
    assert with_row.to_pydict() == {"position": [0], "outcome": [1], "age_ms": [0], "name": ["Ada"]}
    assert without.to_pydict() == {"position": [1], "outcome": [2], "age_ms": [0], "error": [None]}


def test_refusal_has_the_words_of_the_service() -> None:
    """The refusal of an unknown dimension has the code and text of the service."""
    failure = first(frames.Failure)
    with pytest.raises(InvalidRequest) as caught:
        named_dimension({"customers": None}, "nowhere")

    assert isinstance(failure, frames.Failure)
    assert (failure.code, failure.detail) == (caught.value.code, caught.value.detail)


async def test_service_answers_as_written() -> None:
    """The service answers the client's frames with the kinds of frames that follow them."""
    # This service does not stop, and all of its rows fit.
    blocks = [block for block in BLOCKS if block.name not in {"GOAWAY", "REASON"}]
    found: list[str] = []
    async with streaming() as service:
        peer = await service.connect()
        for block in blocks:
            if block.sender == "client":
                await peer.socket.send_bytes(block.message)
            else:
                message = await peer.socket.receive_bytes(timeout=10.0)
                found.append(FrameKind(message[0]).name)

    assert found == [block.name for block in blocks if block.sender == "service"]


def codes_of_keys(sort: str) -> set[str]:
    """The codes of keys of this sort in the document, each named once."""
    (found,) = re.findall(rf"^\* {sort}: (.*?`)$", DOCUMENT, re.MULTILINE | re.DOTALL)
    return named_once(found)


def named_once(text: str) -> set[str]:
    """The codes in a text, which names each once."""
    codes = re.findall("`([a-z_]+)`", text)
    assert len(set(codes)) == len(codes)
    return set(codes)


def test_document_names_every_code() -> None:
    """The document has exactly the codes of keys; a refusal may have one of the others."""
    (refusals,) = re.findall(r"a code of a key, or (.*?)\.", DOCUMENT, re.DOTALL)

    named = codes_of_keys("retriable") | codes_of_keys("not retriable")
    assert named == set(ErrorCode) - IN_REFUSALS - ELSEWHERE
    assert named_once(refusals) == IN_REFUSALS


def test_document_states_retriable_codes() -> None:
    """The document states for each code whether a retry may help."""
    assert all(ErrorCode(code).is_retryable for code in codes_of_keys("retriable"))
    assert not any(ErrorCode(code).is_retryable for code in codes_of_keys("not retriable"))


def test_document_numbers_kinds() -> None:
    """Each kind of frame has a section with its number."""
    kinds = re.findall(r"^### (\d+) ([A-Z]+)$", DOCUMENT, re.MULTILINE)

    assert kinds == [(str(int(kind)), kind.name) for kind in FrameKind]


def test_document_numbers_outcomes() -> None:
    """The lists of outcomes with and without a row have each outcome with its number."""
    _, _, lists = DOCUMENT.partition("Outcomes with the flag *rows*:")
    with_row, _, without = lists.partition("Outcomes without it:")

    assert outcomes_in(with_row) == {each.label: each for each in Outcome if each.has_row}
    assert outcomes_in(without) == {each.label: each for each in Outcome if not each.has_row}


def outcomes_in(text: str) -> dict[str, int]:
    """The outcomes of list items such as "* 0 `hit`: …"."""
    items = re.findall(r"^\* (\d) `([a-z]+)`: ", text, re.MULTILINE)
    return {name: int(number) for number, name in items}
