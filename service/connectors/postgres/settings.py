"""PostgreSQL settings: of a relation and its connections, and those that each session fixes.

A role, a database, the server and the DSN may set those of a session that change what a row looks
like, or end a session that works. Sessions of the sidecar fix all that are listed here. Not listed
are the settings that belong to SQL of the user, and that all sessions of a role share: `role`,
`lc_monetary`, `lc_numeric`, `lc_time`, `default_text_search_config` and `timezone_abbreviations`.
Of `search_path`, only the place of `pg_catalog` is fixed. Settings of plans change no row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.row_bytes import ROW_BYTES
from service.postgres_dsn import shown_hosts

ISOLATION = "default_transaction_isolation"
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
_EQUAL = "OPERATOR(pg_catalog.=)"  # until `pg_catalog` comes first

# Which of the settings $1 do not have the values $2; a custom one may have another form of it.
LOST = """
SELECT w.name FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]))
               AS w (name, value)
WHERE CASE WHEN w.name LIKE '%.%' THEN pg_catalog.current_setting(w.name, true) IS NULL
      ELSE pg_catalog.current_setting(w.name) NOT IN
           (w.value, pg_catalog.concat('pg_catalog, ', w.value)) END ORDER BY w.name
"""

# A parameter of this name does not exist: the error of the server names it.
HIDDEN_ROWS = "sidelook.row_security_hides_rows"
_TAG = "$sidelook$"


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
        tag = _TAG
        while tag in sql:
            tag = f"{tag[:-1]}_$"
        calls.append(f"pg_catalog.query_to_xml({tag}{sql}{tag}, false, false, '')")
    return f"(SELECT pg_catalog.concat({', '.join(calls)})) = ''"


# Behind a pooler, no session of its own fixes these.
UNFIXED = (
    "SELECT w.name, s.value, w.value FROM (VALUES "  # noqa: S608  constants only
    + ", ".join(f"('{name}', '{value}')" for name, value in PARSING.items())
    + ") AS w (name, value), pg_catalog.current_setting(w.name) AS s (value)"
    " WHERE pg_catalog.replace(s.value, 'Etc/', '') OPERATOR(pg_catalog.<>) w.value ORDER BY w.name"
)
# The same of `search_path`, if a schema before `pg_catalog` replaces an operator or a type of it.
REPLACED_CATALOG = f"""
SELECT 'search_path', pg_catalog.current_setting('search_path'), {_CATALOG_FIRST}
WHERE EXISTS (
    SELECT FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS p (name, at)
    JOIN pg_catalog.pg_namespace n ON n.nspname {_EQUAL} p.name
    WHERE p.at OPERATOR(pg_catalog.<)
        pg_catalog.array_position(pg_catalog.current_schemas(false), 'pg_catalog')
    AND (
        EXISTS (
            SELECT FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_operator c
            ON o.oprname {_EQUAL} c.oprname
            AND o.oprleft {_EQUAL} c.oprleft AND o.oprright {_EQUAL} c.oprright
            WHERE o.oprnamespace {_EQUAL} n.oid
            AND c.oprnamespace {_EQUAL} 'pg_catalog'::pg_catalog.regnamespace
        ) OR EXISTS (
            SELECT FROM pg_catalog.pg_type o JOIN pg_catalog.pg_type c
            ON o.typname {_EQUAL} c.typname
            WHERE o.typnamespace {_EQUAL} n.oid
            AND c.typnamespace {_EQUAL} 'pg_catalog'::pg_catalog.regnamespace
        )
    )
)
"""  # noqa: S608  constants only


CONNECT_TIMEOUT_S = 3.0  # unless the DSN has a `connect_timeout`


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
