"""The JSON part of frames: read with types, or refused with the byte where it stands."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.described_frames import (
    MAX_BYTES,
    MAX_COUNT,
    FrameDescription,
    decode_description,
    encode_description,
)

OFFSET = 16
NO_COUNTS = [None, True, 1.0, "1", -1, MAX_COUNT + 1]
texts = st.text(st.characters(exclude_categories=["Cs"]))


def described(text: bytes, *, length: int | None = None) -> memoryview:
    """A body with these bytes as its description."""
    size = len(text) if length is None else length
    return memoryview(size.to_bytes(4, "little") + text)


def decoded(**fields: object) -> FrameDescription:
    """A description with these fields, as it comes from the wire."""
    return decode_description(memoryview(encode_description(fields)), offset=OFFSET)


@given(st.dictionaries(texts, texts | st.integers() | st.lists(texts) | st.none()), st.binary())
def test_description_survives_the_wire(fields: dict[str, object], rest: bytes) -> None:
    """Fields come out as they went in, and what follows them follows them."""
    body = encode_description(fields) + rest

    found = decode_description(memoryview(body), offset=OFFSET)

    assert (found.fields, bytes(found.rest)) == (fields, rest)
    assert found.rest_offset == OFFSET + len(body) - len(rest)


@pytest.mark.parametrize(
    ("body", "offset", "detail"),
    [
        (memoryview(b""), 16, "the frame ends too early"),
        (memoryview(b"\2\0\0"), 19, "the frame ends too early"),
        (described(b"{", length=2), 16, "the description is longer than the frame or its limit"),
        (described(b"[]"), 20, "the description must be a JSON object"),
        (described(b""), 20, "the description is not JSON"),
        (described(b"{]"), 20, "the description is not JSON"),
        (described(b'{"a": "\xff"}'), 20, "the description is not JSON"),
        (described('{"a": 1}'.encode("utf-16")), 20, "the description is not JSON"),
        (described(rb'{"a": "\ud800"}'), 20, "the description is not JSON"),
        (described(b'{"a": ' + b"[" * 60_000), 20, "the description is not JSON"),
        (described(b'{"a": ' + b"9" * 60_000 + b"}"), 20, "the description is not JSON"),
    ],
)
def test_other_bytes_are_refused(body: memoryview, offset: int, detail: str) -> None:
    """What is not a JSON object in UTF-8 is a bad frame, with the byte where it goes wrong."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_description(body, offset=OFFSET)

    assert caught.value.code is ErrorCode.BAD_FRAME
    assert caught.value.detail == f"{detail} (at byte {offset})"


def test_description_has_a_limit() -> None:
    """A description of the largest size is read, one byte more is not."""
    largest = json.dumps({"a": "x" * (MAX_BYTES - 9)}).encode()

    assert len(largest) == MAX_BYTES
    assert decode_description(described(largest), offset=OFFSET).text("a")
    with pytest.raises(ProtocolViolation):
        decode_description(described(largest + b" "), offset=OFFSET)


def test_fields_are_read_with_types() -> None:
    """Each kind of field gives its Python value."""
    found = decoded(
        name="é", idle=False, credit=0, versions=[1, MAX_COUNT], columns=["a"], other=None
    )

    assert found.text("name") == "é"
    assert found.truth("idle") is False
    assert found.count("credit") == 0
    assert found.counts("versions") == (1, MAX_COUNT)
    assert found.texts("columns") == ("a",)
    assert (found.texts_or_none("columns"), found.texts_or_none("other")) == (("a",), None)


@pytest.mark.parametrize(
    ("read", "wanted", "values"),
    [
        (FrameDescription.text, "a text", [None, 1, ["a"]]),
        (FrameDescription.truth, "true or false", [None, 1, "true"]),
        (FrameDescription.count, "a whole number from 0 to 2**53 - 1", NO_COUNTS),
        (
            FrameDescription.counts,
            "a list of whole numbers from 0 to 2**53 - 1",
            [None, 1, *([each] for each in NO_COUNTS)],
        ),
        (FrameDescription.texts, "a list of texts", [None, "a", [1], [None], {}]),
        (FrameDescription.texts_or_none, "a list of texts", ["a", [1], [None], {}]),
    ],
)
def test_other_values_are_refused(
    read: Callable[[FrameDescription, str], object], wanted: str, values: list[object]
) -> None:
    """A field of another type is named, with what it must be; nothing is coerced."""
    for value in values:
        found = decoded(field=value)

        with pytest.raises(ProtocolViolation) as caught:
            read(found, "field")

        assert caught.value.detail == f"the description's 'field' must be {wanted} (at byte 20)"
        assert caught.value.code is ErrorCode.BAD_FRAME


def test_what_may_be_left_out_is_nothing() -> None:
    """A text or a truth that is not there, or null, is none; another type is refused."""
    words = decoded(a="x", b=True, c=None, d=1)

    assert [words.text_or_none(name) for name in "ace"] == ["x", None, None]
    assert [words.truth_if_told(name) for name in "bce"] == [True, False, False]
    for read in (words.text_or_none, words.truth_if_told):
        with pytest.raises(ProtocolViolation, match="'d' must be"):
            read("d")
