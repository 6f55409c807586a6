"""The address of a PostgreSQL server in a file that may be rotated, as it is at each connection.

Connects to nobody, and neither shows nor logs what the file holds.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

_SCHEMES = ("postgres://", "postgresql://")


class RotatedDsn:
    """The last address that could be read: while a secret is swapped, its file may be away."""

    def __init__(self, path: Path, read: Callable[[], str], *, first: str) -> None:
        self._path = path
        self._read = read
        self._last = first

    def now(self) -> str:
        """The address to connect to; what is none is logged, and the last one counts."""
        try:
            found = self._read()
        except (OSError, UnicodeDecodeError) as error:
            self._warn(type(error).__name__)
            return self._last
        if not found.startswith(_SCHEMES):
            self._warn("NoAddress")
            return self._last
        self._last = found
        return found

    def _warn(self, code: str) -> None:
        structlog.get_logger().error("postgres.dsn_file_unusable", code=code, path=str(self._path))
