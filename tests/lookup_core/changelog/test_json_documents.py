"""The JSON documents in messages."""

import orjson
import pytest

from lookup_core.changelog.json_column import JsonDocuments

DOCUMENTS = JsonDocuments(orjson.loads, max_bytes=9)


def test_document_is_read() -> None:
    """JSON of up to the largest size is read."""
    assert DOCUMENTS.read(b'{"id": 1}') == {"id": 1}


def test_nothing_is_no_document() -> None:
    """Where there is nothing to read, there is None."""
    assert DOCUMENTS.read(None) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"id": 12}', "^it has 10 bytes, more than 9$"),
        (b"\0\0\0\0\1sec", "^it is not JSON$"),  # Avro, with the number of its schema
        (b"\xff", "^it is not JSON$"),
        (b"", "^it is not JSON$"),
    ],
)
def test_reasons_hold_no_content(content: bytes, reason: str) -> None:
    """What is too large or no JSON is refused, and the reason shows nothing of it."""
    with pytest.raises(ValueError, match=reason):
        DOCUMENTS.read(content)
