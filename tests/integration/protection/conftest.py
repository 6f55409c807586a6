"""What the tests of protection share: a server of their own, and a short folder for a sidecar.

Their server crashes on purpose, so it is not the one of the other integration tests.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.processes.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of these tests."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a sidecar has its files."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
