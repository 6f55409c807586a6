"""Settings of one PostgreSQL table, and the DSN from a file that may be rotated."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import structlog

from lookup_core.dimension_schema import VersionColumns
from lookup_core.row_bytes import ROW_BYTES
from service.connectors.postgres.session_settings import AT_START, TRACKED

log = structlog.get_logger()

CONNECT_TIMEOUT_S = 3.0  # unless the DSN has a `connect_timeout`

_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?"
# No @ may follow the hosts: the text before it could be the end of a password with / or ?.
_DSN = re.compile(rf"\w+://(?:[^@/?#]*@)?({_HOST}(?:,{_HOST})*)(?:[/?][^@]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Connection and relation; `table` is parsed as in SQL, with schema and quotes."""

    dsn: str = field(repr=False)  # may hold a password
    table: str  # with `query`: its name in messages
    key: tuple[str, ...]
    columns: tuple[str, ...] | None = None  # None: all but the key
    types: Mapping[str, pa.DataType] = field(default_factory=dict)  # {column: requested type}
    query: str | None = None  # one SELECT instead of a table
    where: str | None = None  # condition of the rows that the dimension has
    max_connections: int = 4  # of a pool
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    statement_timeout_s: float = 2.0  # on the server; the longest timeout of its lookups
    row_bytes: int = ROW_BYTES  # of one row, or of all rows of a key with several
    has_several_rows: bool = False  # per key, in a stable order
    is_first: bool = False  # of these, only the first counts
    versions: VersionColumns | None = None  # the validity of each row of a key
    is_followed: bool = False  # by a change feed; rows are fetched with their snapshot
    has_triggers: bool = False  # as the source of the feed
    is_whole: bool = False  # the cache holds the table: its keys are not compared by the database
    needs_publication: bool = False  # as the source of the feed, by Debezium
    publication: str | None = None  # the only one that counts; None: each of the database
    require_index: bool = False  # refuse a table that each query would read completely
    pgbouncer: bool = False  # transaction pooling: no session state, no prepared statements
    # Read for each connection if the password is rotated; `dsn` is the value at startup.
    dsn_now: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    def current_dsn(self) -> str:
        """The DSN with the current password."""
        return self.dsn if self.dsn_now is None else self.dsn_now()

    @property
    def address(self) -> str:
        """Hosts and ports of the DSN, for messages; empty if they may include a password."""
        found = _DSN.fullmatch(self.dsn)
        return found[1] if found else ""

    @property
    def server_settings(self) -> dict[str, str]:
        """Startup parameters of a session: the pool's reset would undo a `SET`.

        PgBouncer refuses parameters that it does not track; set them for the role instead
        (`ALTER ROLE … SET statement_timeout`).
        """
        if self.pgbouncer:
            return {"application_name": "sidelook", **TRACKED}
        return {
            "application_name": "sidelook",
            "statement_timeout": f"{max(1, round(self.statement_timeout_s * 1000))}ms",
            **AT_START,  # the first query of a session fixes other settings
        }

    @property
    def statement_cache_size(self) -> int:
        """Prepared statements per connection."""
        return 0 if self.pgbouncer else 16


class RotatedDsn:
    """DSN from a file; the last valid one while the file is missing during a rotation.

    `read` raises OSError, or ValueError for an invalid DSN.
    """

    def __init__(self, path: Path, read: Callable[[], str], *, first: str) -> None:
        self._path = path
        self._read = read
        self._last = first

    def now(self) -> str:
        """The DSN for a new connection; an invalid file is logged, and the last DSN stays."""
        try:
            self._last = self._read()
        except (OSError, ValueError) as error:
            log.error(  # noqa: TRY400 -- the error's text may contain the secret
                "postgres.dsn_file_unusable",
                code=type(error).__name__,
                path=str(self._path),
                detail="the last valid address is used; check-config shows the fault",
            )
        return self._last
