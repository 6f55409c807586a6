"""Sessions: their settings, the identity of their server, and those outside the pool.

A role, a database, the server and the DSN may set what changes a row's look, or ends a session that
works. Sessions of the sidecar fix all that is listed here. Not listed are the settings that belong
to SQL of the user, and that all sessions of a role share: `role`, `lc_monetary`, `lc_numeric`,
`lc_time`, `default_text_search_config` and `timezone_abbreviations`. Of `search_path`, only the
place of `pg_catalog` is fixed. Settings of plans change no row.

Each part of a server's identity is optional: managed services, revoked rights and other servers
with PostgreSQL's protocol lack some of them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import asyncpg
import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.row_bytes import ROW_BYTES
from service.connectors.postgres import sql_text
from service.connectors.postgres.errors import (
    HIDDEN_ROWS,
    ISOLATION,
    mapped_errors,
    mapped_parameters,
    own_statements,
)
from service.postgres_dsn import HOST_NAMES, DsnSettings, settings_of, shown_hosts

READ_COMMITTED = {ISOLATION: "read committed"}  # a standby refuses serializable transactions
# Startup parameters of lookups.
AT_START = {
    **READ_COMMITTED,
    "jit": "off",  # compilation takes longer than any batch of index lookups
    "row_security": "off",  # rows hidden by a policy are an error, not missing
}

# Texts of values, and conversions between types; they take effect when a query runs.
_TEXTS = {
    "array_nulls": "on",
    "bytea_output": "hex",  # also bytes in JSON and in composite values
    "datestyle": "ISO, MDY",  # also ranges of times
    "extra_float_digits": "1",  # floats are exact, also in JSON, points and composite values
    "intervalstyle": "postgres",
    "quote_all_identifiers": "off",  # also names of types and tables
    "timezone": "UTC",  # timestamps with time zone as texts, in JSON and in ranges
    "xmlbinary": "base64",
    "xmloption": "content",
}
# What SQL of the configuration means, also its literals; they take effect when the server parses a
# statement.
PARSING = {
    **{name: _TEXTS[name] for name in ("array_nulls", "datestyle", "intervalstyle", "timezone")},
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
}
# PgBouncer sets these for each of its clients, by their startup parameters.
TRACKED = {name: PARSING[name] for name in ("datestyle", "standard_conforming_strings", "timezone")}
# A scan of a GIN index would leave out rows at random.
_FINDING = {"gin_fuzzy_search_limit": "0"}
# The statement timeout alone ends a query; a lookup plans and runs without parallel workers' start.
_RUNNING = {
    "default_transaction_deferrable": "off",
    "exit_on_error": "off",  # a refused key would end the session, and with it the whole batch
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",  # from version 14
    "lock_timeout": "0",
    "transaction_timeout": "0",  # from version 17
}
_FIXED = {**AT_START, **_TEXTS, **PARSING, **_FINDING, **_RUNNING}
# As by default, `pg_catalog` comes first, also if `search_path` names it later: no operator or type
# of another schema takes the place of one of the server. An empty path is no list.
_CATALOG_FIRST = (
    "pg_catalog.concat('pg_catalog, ', pg_catalog.regexp_replace("
    "pg_catalog.current_setting('search_path'), '^ *$', '\"\"'))"
)
LOST = sql_text("lost_settings")
# Behind a pooler, no session of its own fixes these.
UNFIXED = (
    "SELECT w.name, s.value, w.value FROM (VALUES "  # noqa: S608  constants only
    + ", ".join(f"('{name}', '{value}')" for name, value in PARSING.items())
    + ") AS w (name, value), pg_catalog.current_setting(w.name) AS s (value)"
    " WHERE pg_catalog.replace(s.value, 'Etc/', '') OPERATOR(pg_catalog.<>) w.value ORDER BY w.name"
)
REPLACED_CATALOG = sql_text("replaced_catalog")  # the same of `search_path`
CONNECT_TIMEOUT_S = 3.0  # unless the DSN has a `connect_timeout`
CLOSE_TIMEOUT_S = 0.9
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"  # generic in the stubs only
# Classes of SQLSTATE that say nothing of the statement: lack of memory, shutdown, timeout, disk.
_PASSING = frozenset({"53", "57", "58"})
Fetch: TypeAlias = Callable[[str], Awaitable[Sequence[Any]]]


def fixed_settings(others: Mapping[str, str], *, is_local: bool) -> str:
    """The query that fixes these settings and `others`; a setting that the server lacks is left.

    With `is_local`, they end with the transaction.
    """
    values = ", ".join(f"('{name}', '{value}')" for name, value in {**_FIXED, **others}.items())
    values = f"('search_path', {_CATALOG_FIRST}), {values}"
    return (
        f"SELECT pg_catalog.count(pg_catalog.set_config(w.name, w.value, {str(is_local).lower()}))"  # noqa: S608  constants only
        f" FROM (VALUES {values}) AS w (name, value)"
        " WHERE pg_catalog.current_setting(w.name, true) IS NOT NULL"
    )


def dollar_quoted(text: str) -> str:
    """The text as an SQL literal that may have any characters."""
    tag = "$sidelook$"
    while tag in text:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{text}{tag}"


def guard(*, table_id: int, sql: str | None) -> str:
    """A condition that is never true, and that the server evaluates once for a query.

    It fixes the settings until the end of the transaction, makes the transaction read-only, and
    fails if row-level security hides rows of the table, or of any table below `sql`. The server
    decides about row-level security when it plans: `sql` is planned again, after the settings.
    """
    local = {**_TEXTS, **_FINDING, "row_security": "off", "transaction_read_only": "on"}
    calls = [
        f"CASE WHEN pg_catalog.current_setting('{name}') <> '{value}'"  # most are right already
        f" THEN pg_catalog.set_config('{name}', '{value}', true) END"
        for name, value in local.items()
    ]
    if sql is None:
        fault = f"pg_catalog.current_setting('{HIDDEN_ROWS}')"
        calls.append(f"CASE WHEN pg_catalog.row_security_active({table_id}::oid) THEN {fault} END")
    else:
        calls.append(f"pg_catalog.query_to_xml({dollar_quoted(sql)}, false, false, '')")
    return f"(SELECT pg_catalog.concat({', '.join(calls)})) = ''"


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
    max_connections: int = 4  # that its pool opens
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    statement_timeout_s: float = 2.0  # on the server; the longest timeout of its lookups
    row_bytes: int = ROW_BYTES  # limit for one row, or for all rows of a key with several
    has_several_rows: bool = False  # per key, in a stable order
    is_first: bool = False  # only the first row of a key counts
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
        return shown_hosts(self.dsn)

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


def unavailable(
    settings: PostgresSettings, reason: str, *, is_permanent: bool = True
) -> BackendError:
    """The refusal of a relation; permanent if it exists and does not suit the configuration."""
    detail = f"{settings.table}: {reason}"
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, detail, is_permanent=is_permanent)


class CatalogRow(Protocol):
    """Columns of a row by name, or by position."""

    def __getitem__(self, name: Any, /) -> Any:  # noqa: ANN401  as the database returns it
        """The value of the column."""

    def keys(self) -> Iterable[str]:
        """The names of the columns."""


RunQuery: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Sequence[CatalogRow]]]


async def run_own(run: RunQuery, statement: str, *arguments: Any) -> Sequence[CatalogRow]:  # noqa: ANN401  of SQL
    """Run a statement on the catalog; its failure is not explained as a fault of the relation."""
    with own_statements():
        return await run(statement, arguments)


@dataclass(frozen=True, slots=True)
class IdentityPart:
    """One part of the identity, and what is not found without it."""

    sql: str
    functions: tuple[str, ...]  # that the role must be allowed to execute
    loss: str


# The control file's timeline lags until the first checkpoint after a promotion; the name of the
# present file of the log does not. In recovery there is no present file.
PARTS = {
    "system": IdentityPart(
        "(SELECT s.system_identifier::text FROM pg_catalog.pg_control_system() AS s)",
        ("pg_control_system()",),
        "other clusters at its address are found by their start only",
    ),
    "database_id": IdentityPart(
        "(SELECT d.oid FROM pg_catalog.pg_database AS d"
        " WHERE d.datname = pg_catalog.current_database())",
        ("current_database()",),
        "a recreated database is not found",
    ),
    "is_standby": IdentityPart(
        "pg_catalog.pg_is_in_recovery()",
        ("pg_is_in_recovery()",),
        "failovers and restarts are not found",
    ),
    "timeline": IdentityPart(
        "CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.substr("
        "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END",
        ("pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)"),
        "failovers are found by the start of the server only",
    ),
    "replayed_timeline": IdentityPart(
        "(SELECT greatest(c.timeline_id, r.min_recovery_end_timeline)"
        " FROM pg_catalog.pg_control_checkpoint() AS c, pg_catalog.pg_control_recovery() AS r"
        " WHERE pg_catalog.pg_is_in_recovery())",
        ("pg_control_checkpoint()", "pg_control_recovery()"),
        "failovers are not found while only standbys answer",
    ),
    "started_at": IdentityPart(
        "(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) * 1000000)::int8",
        ("pg_postmaster_start_time()",),
        "restarts, and copies with the same timeline, are not found",
    ),
}


class Identification:
    """Reads identities in one statement; a part that the server refuses is not read again."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()  # parts that the server refuses

    async def read(self, fetch: Fetch) -> ServerIdentity:
        """The identity of the server of a session.

        Raises the errors of `fetch`, except that a part is unknown if its statement is refused.
        """
        parts = [part for part in PARTS if part not in self.unknown]
        values = await self._values(parts, fetch)
        if values is None:
            values = {}
            for part in parts:
                found = await self._values([part], fetch)
                if found is None:
                    self.unknown.add(part)
                values |= found or {}
        return _identity(**values)

    async def _values(self, parts: Sequence[str], fetch: Fetch) -> dict[str, Any] | None:
        """The values of the parts; None if the server refuses one of them."""
        if not parts:
            return {}
        columns = ", ".join(f"{PARTS[part].sql} AS {part}" for part in parts)
        try:
            (record,) = await fetch(f"SELECT {columns}")
        except asyncpg.PostgresError as error:
            if str(error.sqlstate)[:2] in _PASSING:
                raise
            return None
        return dict(record)


def _identity(
    *,
    timeline: str | None = None,
    replayed_timeline: int | None = None,
    **others: Any,  # noqa: ANN401  the columns of the statement
) -> ServerIdentity:
    exact = None if timeline is None else int(timeline, 16)
    return ServerIdentity(timeline=exact or replayed_timeline, **others)


class DedicatedSession:
    """One connection outside the pool, of a load or a listener."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection."""
        assert self._connection is not None, "opening comes first"
        return self._connection

    async def connect(self, connecting: Awaitable[Connection]) -> Connection:
        """Use this connection from now on."""
        self._connection = await connecting
        return self._connection

    async def close(self) -> None:
        """Close the connection; terminate it after a second, or on cancellation. Never raises."""
        if self._connection is not None and not self._connection.is_closed():
            await close_session(self._connection)

    @asynccontextmanager
    async def bounded(self, timeout_s: float) -> AsyncIterator[None]:
        """Raise BackendError in time; the connection is terminated unless the block succeeds."""
        with ExitStack() as stack, mapped_errors(self._table, sends_keys=False):
            stack.callback(self.terminate)
            async with asyncio.timeout(timeout_s):
                yield
            stack.pop_all()

    def failure(self, code: ErrorCode, reason: str) -> BackendError:
        """The error of this table."""
        return BackendError(code, f"{self._table}: {reason}")

    def terminate(self) -> None:
        """End the connection at once, if it was opened."""
        if self._connection is not None:
            self._connection.terminate()


async def connected(settings: DsnSettings, **options: Any) -> Connection:  # noqa: ANN401  passed on
    """A new connection to the present address; raises what `mapped_errors` maps."""
    with mapped_parameters():
        return await asyncpg.connect(await HOST_NAMES.resolved_dsn(settings), **options)


async def close_session(connection: Connection) -> None:
    """Close the connection; terminate it after a second, or on cancellation. Never raises."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass  # it is closed, and nothing was written
    finally:
        connection.terminate()


async def check_meaning(run: RunQuery, settings: PostgresSettings) -> None:
    """Check that sessions have the settings of the DSN, and none that change what SQL means.

    Raises BackendError: `table_unavailable` with the statement that mends it.
    """
    given = settings_of(settings.dsn)
    if given and (lost := await run_own(run, LOST, [*given], [*given.values()])):
        names = ", ".join(each["name"] for each in lost)
        remedy = "set it by ALTER ROLE, and remove it from the DSN"
        reason = f"sessions lack {names} of the DSN, which a pooler ignores; {remedy}"
        raise unavailable(settings, reason, is_permanent=False)
    if not settings.pgbouncer:
        return
    found = [*await run_own(run, REPLACED_CATALOG)]
    if settings.query is not None or settings.where is not None:
        found += await run_own(run, UNFIXED)
    if found:
        names = ", ".join(f"{each[0]} = {each[1]}" for each in found)
        remedy = "; ".join(f"ALTER ROLE … SET {each[0]} = {each[2]}" for each in found)
        reason = f"behind PgBouncer, sessions have {names}, which changes what SQL means; run "
        raise unavailable(settings, reason + remedy, is_permanent=False)
