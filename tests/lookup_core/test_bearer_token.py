"""Bearer tokens of files, as the sidecar, its commands and the Spark client read them."""

import pytest

from lookup_core.bearer_token import parse_token

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("content", [b"s3cret", b" s3cret\r\n", BOM + b"s3cret\n", b"\ts3cret\f"])
def test_surroundings_are_no_token(content: bytes) -> None:
    """A byte order mark, white space and line ends around a token are no part of it."""
    assert parse_token(content) == "s3cret"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *((content, "is empty") for content in (b"", b"\r\n", BOM, BOM + b"\n")),
        ("sécret".encode(), "is not ASCII text"),
        ("sécret".encode("latin-1"), "is not ASCII text"),
        ("s3cret".encode("utf-16"), "is not ASCII text"),
        (BOM + BOM + b"s3cret", "is not ASCII text"),
        ("s3cret\u200b".encode(), "is not ASCII text"),
        (b"two\nlines", "has several lines or control characters"),
        (b"s3\0cret", "has several lines or control characters"),
        (b"s3cret\x7f", "has several lines or control characters"),
    ],
)
def test_header_can_carry_each_token(content: bytes, fault: str) -> None:
    """A token is one line of printable ASCII; the fault of another text does not show it."""
    with pytest.raises(ValueError, match=f"^{fault}$"):
        parse_token(content)
