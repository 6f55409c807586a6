"""Settings of one PostgreSQL table, and the DSN file that may be rotated."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from lookup_core.dimension_schema import VersionColumns

_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?"
# Nothing behind an @ that could be the rest of a password with a / or a ? in it.
_DSN = re.compile(rf"\w+://(?:[^@/?#]*@)?({_HOST}(?:,{_HOST})*)(?:[/?][^@]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Where the rows are; `table` is read as SQL would read it (schema and quotes included)."""

    dsn: str = field(repr=False)  # may hold a password
    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...] | None = None  # None: all but the key
    max_connections: int = 8  # as many as batches may be in flight
    connect_timeout_s: float = 3.0
    statement_timeout_s: float = 2.0  # the server ends what we gave up; as long as a lookup takes
    has_several_rows: bool = False  # by key, so that their order matters
    versions: VersionColumns | None = None  # when a row of a key is valid
    is_followed: bool = False  # changes are told; rows come with the transactions that they show
    has_triggers: bool = False  # which tell of the changes
    require_index: bool = False  # refuse a table that each batch would read from end to end
    pgbouncer: bool = False  # transactions are pooled: sessions and their statements are not ours
    # For each connection anew, where its password may be rotated; `dsn` is what it was at first.
    dsn_now: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    def current_dsn(self) -> str:
        """The address as it is now."""
        return self.dsn if self.dsn_now is None else self.dsn_now()

    @property
    def address(self) -> str:
        """Hosts and ports of the DSN, for people; empty where they cannot be told for certain."""
        found = _DSN.fullmatch(self.dsn)
        return found[1] if found else ""

    @property
    def server_settings(self) -> dict[str, str]:
        """Parameters that sessions start with: a `SET` would not survive the pool's reset.

        PgBouncer refuses those that it does not track; there the role must bring them (`ALTER ROLE
        … SET statement_timeout`).
        """
        if self.pgbouncer:
            return {"application_name": "sidelook"}
        return {
            "application_name": "sidelook",
            "statement_timeout": f"{max(1, round(self.statement_timeout_s * 1000))}ms",
            "jit": "off",  # compiling takes longer than any batch of index lookups
            "row_security": "off",  # rows that a policy hides must be an error, never missing
        }

    @property
    def statement_cache_size(self) -> int:
        """How many prepared statements a connection keeps."""
        return 0 if self.pgbouncer else 16


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
