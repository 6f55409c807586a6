"""A bearer token in a file, read anew whenever the file changes.

Never the token's text: only its digest stays in memory, and nothing of it is logged.
"""

import hashlib
import hmac
from pathlib import Path

import structlog

_Version = tuple[int, int, int]  # inode, modification time, size: a swapped symlink changes it


class TokenFile:
    """The token of one file; while the file cannot be read, the last one that was read counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: _Version | None = None
        self._digest = b""  # equals no digest: without a token nothing matches

    def matches(self, presented: str) -> bool:
        """Whether the token is this one; takes as long for a wrong one as for the right one."""
        self._refresh()
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._digest)

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._version:
                self._digest = _digest(self._path.read_bytes().strip())
                self._version = version
        except OSError as error:
            structlog.get_logger().error(
                "http.token_file_unreadable", code=type(error).__name__, path=str(self._path)
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest() if token else b""
