"""What the integration tests share: one PostgreSQL server, and a database for each test.

Not what single tests do to them.
"""

from collections.abc import Iterator

import pytest

from tests.integration.postgres_server import Database, PostgresServer, running_postgres

pytest.register_assert_rewrite("tests.service.backends.backend_contract")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this run."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Database:
    """An empty database of this test."""
    return postgres_server.new_database()
