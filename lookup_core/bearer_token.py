"""Bearer token of a file: the one rule of sidecar, commands and Spark client."""

import codecs

FORM = "write one line of printable ASCII into it"  # the remedy of each fault


def parse_token(content: bytes) -> str:
    """The token in the content of a file, without byte order mark and white space around it.

    Raises ValueError, without any part of the content, for a text that no HTTP header can carry.
    """
    text = content.removeprefix(codecs.BOM_UTF8).strip()
    if not text:
        raise ValueError("is empty")
    if not text.isascii():
        raise ValueError("is not ASCII text")
    token = text.decode("ascii")
    if not token.isprintable():
        raise ValueError("has several lines or control characters")
    return token
