"""Embedded PostgreSQL of the demonstration: start, tables, and the count of queries in its log."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from demo.dimension import DIMENSIONS, Dimension
from demo.embedded_postgres import EmbeddedPostgres, temporary_server
from demo.flights import NULL, data_package

DATABASE = "flights"
READER = "sidelook"  # role of the sidecar, which may only read the dimensions
LINE_PREFIX = "user=%u application=%a "  # `log_line_prefix`
STATEMENTS = (
    # One log line for each statement of the reader, without values.
    f"ALTER SYSTEM SET log_line_prefix = '{LINE_PREFIX}'",
    "ALTER SYSTEM SET log_parameter_max_length = 0",
    f"ALTER ROLE {READER} SET log_statement = 'all'",
    "SELECT pg_reload_conf()",
)
# One line per execution; further lines of a statement start with a tab.
EXECUTION = re.compile(r"^user=(?P<user>\S+) application=\S* LOG: +(execute [^:]*|statement): ")
LOOKUP = "WITH ORDINALITY"  # occurs in lookups, not in catalog queries
PLAN = "EXPLAIN"  # plans a lookup without executing it


@contextmanager
def embedded_postgres(*, settings: str = "") -> Iterator[EmbeddedPostgres]:
    """Start a server with empty databases, and remove it at the end.

    `settings` are lines of its configuration file.
    """
    with temporary_server() as server:
        server.ensure_pgdata_inited()
        with (server.pgdata / "postgresql.conf").open("a") as configuration:
            configuration.write(settings)
        server.start()
        yield server


class QueryLog:
    """Log of a server from its present end on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start_bytes = path.stat().st_size

    def count(self, user: str, tables: Sequence[str]) -> dict[str, int]:
        """Return {table: lookups that `user` executed}."""
        with self._path.open("rb") as log:
            log.seek(self._start_bytes)
            lines = log.read().decode(errors="replace").replace("\n\t", " ").splitlines()
        executions = [each for each in map(EXECUTION.match, lines) if each and each["user"] == user]
        texts = (each.string for each in executions)
        lookups = [each for each in texts if LOOKUP in each.upper() and PLAN not in each.upper()]
        source = re.compile(rf"\b(?:FROM|JOIN)\s[^,;(]*?\b({'|'.join(tables)})\b", re.IGNORECASE)
        counts = Counter(match[1] for match in map(source.search, lookups) if match)
        return {table: counts[table] for table in tables}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server with the four tables."""

    reader_dsn: str
    admin_dsn: str
    socket: str
    log: Path  # has a line for each statement of the reader


@contextmanager
def running_postgres(*, has_logical_wal: bool = False) -> Iterator[Postgres]:
    """Start a server with the tables, and remove it at the end.

    `has_logical_wal` enables logical decoding, which Debezium needs.
    """
    settings = "wal_level = logical\n" if has_logical_wal else ""
    with embedded_postgres(settings=settings) as server:
        _create_database(server.get_uri())
        admin_dsn = server.get_uri(DATABASE)
        _fill(admin_dsn)
        host = str(conninfo_to_dict(admin_dsn)["host"])
        yield Postgres(
            reader_dsn=f"postgresql://{READER}@/{DATABASE}?host={quote(host, safe='')}",
            admin_dsn=admin_dsn,
            socket=f"{host}/.s.PGSQL.5432",
            log=server.log,
        )


def _as_admin(dsn: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(dsn, autocommit=True)


def _create_database(dsn: str) -> None:
    with _as_admin(dsn) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
        connection.execute(f"CREATE ROLE {READER} LOGIN")
        for statement in STATEMENTS:
            connection.execute(statement)


def _fill(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for dimension in DIMENSIONS:
            connection.execute(_create_table(dimension))
            with connection.cursor().copy(_copy(dimension)) as copy:
                copy.write((data_package() / f"{dimension.name}.csv").read_bytes())
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


def _copy(dimension: Dimension) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER match, NULL {})").format(
        sql.Identifier(dimension.name),
        sql.SQL(", ").join(map(sql.Identifier, dimension.types)),
        sql.Literal(NULL),
    )
