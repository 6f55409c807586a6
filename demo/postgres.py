"""A real PostgreSQL for the demonstration: started from a wheel, filled, asked what it did.

Not a fixture of the tests; those have their own server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from demo.data_package import NULL, data_package
from demo.dimension import DIMENSIONS, Dimension
from demo.embedded_postgres import embedded_postgres
from demo.query_log import LINE_PREFIX

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
