"""The frames written out as hex in docs/wire_protocol.md.

Reads the Markdown only; what the frames must be is the tests' business.
"""

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire_protocol.md"
_BLOCK = re.compile(r"^```wire\n(client|service): ([A-Z]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class WireBlock:
    """One frame as the document writes it."""

    sender: str  # client or service
    name: str  # of the kind
    message: bytes
    comments: tuple[tuple[bytes, str], ...]  # the bytes of a line, and what it says of them


def wire_blocks() -> list[WireBlock]:
    """All of them, in the order of the conversation."""
    return [_block(*found) for found in _BLOCK.findall(DOCUMENT.read_text())]


def _block(sender: str, name: str, text: str) -> WireBlock:
    lines = [line.partition("#") for line in text.splitlines()]
    comments = tuple((bytes.fromhex(hexed), comment.strip()) for hexed, _, comment in lines)
    return WireBlock(sender, name, b"".join(given for given, _ in comments), comments)
