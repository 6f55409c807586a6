"""JSON bodies are taken as RFC 8259 has them, and every fault is told with its place."""

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.body import json_body


def test_valid_json_is_parsed_exactly() -> None:
    """Integers of any size stay exact, texts may hold any character."""
    body = '{"keys": [9007199254740993, 1.5, "é\\u0000", true, null]}'.encode()

    assert json_body(body) == {"keys": [9007199254740993, 1.5, "é\0", True, None]}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is not JSON: Expecting value at character 0"),
        (b'{"keys": [1,}', "the body is not JSON: Expecting value at character 12"),
        (b"[1] x", "the body is not JSON: Extra data at character 4"),
        (b'["\xff"]', "not UTF-8 at byte 2"),
        (b"[1, NaN]", "NaN is not JSON, at character 4"),
        (b'["NaN", -Infinity]', "-Infinity is not JSON, at character 8"),
        (b"[1e999]", "a number is out of range"),
        (b"[" + b"9" * 5000 + b"]", "a number is out of range"),
        (b'{"keys": [], "keys": [1]}', "an object has the same name twice"),
    ],
)
def test_bad_json_is_refused_with_its_place(body: bytes, detail: str) -> None:
    """What is not JSON is told with what is wrong and where."""
    with pytest.raises(InvalidRequest) as caught:
        json_body(body)

    assert (caught.value.code, caught.value.detail) == (ErrorCode.BAD_JSON, detail)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_refused(opening: bytes) -> None:
    """A hundred thousand brackets are a bad request, not a crash."""
    with pytest.raises(InvalidRequest) as caught:
        json_body(b'["]",' + opening * 100_000)

    position = 5 + 100 * len(opening) - (len(opening) - 1 if opening != b"[" else 0)
    assert caught.value.detail.startswith("nested too deeply at character ")
    assert 0 < int(caught.value.detail.rpartition(" ")[2]) <= position + len(opening)
