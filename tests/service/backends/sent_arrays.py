"""Arrays and columns as a PostgreSQL server would send them, one value at a time.

For tests of what reads them; a real server's are read by the integration tests.
"""

import struct
from collections.abc import Sequence


def sent_array(values: Sequence[float | None], code: str, *, oid: int) -> bytes:
    """Values of one width, in the format that `struct` has this code for."""
    header = struct.pack(">5i", 1, None in values, oid, len(values), 1)
    return header + b"".join(_element(value, code) for value in values)


def sent_bytes(values: Sequence[bytes | None]) -> bytes:
    """Values of any length: their lengths, then the values."""
    lengths = [None if value is None else len(value) for value in values]
    return sent_array(lengths, "i", oid=23) + b"".join(value or b"" for value in values)


def _element(value: float | None, code: str) -> bytes:
    if value is None:
        return struct.pack(">i", -1)
    return struct.pack(f">i{code}", struct.calcsize(f">{code}"), value)
