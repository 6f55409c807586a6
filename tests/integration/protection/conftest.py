"""A PostgreSQL server of the protection tests, which crash it."""

from collections.abc import Iterator

import pytest

from tools.processes.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of these tests."""
    with running_postgres() as server:
        yield server
