"""What the integration tests share: one PostgreSQL server, and a database for each test.

Not what single tests do to them.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.postgres_server import Database, PostgresServer

pytest.register_assert_rewrite("tests.service.backends.backend_contract")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this run."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-postgres-"))  # short: sockets have short paths
    server = PostgresServer(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(postgres_server: PostgresServer) -> Database:
    """An empty database of this test."""
    return postgres_server.new_database()
