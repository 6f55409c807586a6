"""The PostgreSQL backend keeps the contract, over a real server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from service.connectors.postgres.backend import PostgresBackend
from tests.integration.postgres_tables import put_table
from tests.service.connectors.backend_contract import BackendContract, OpenBackend
from tools.processes.postgres_server import Database

pytestmark = pytest.mark.real_path


class TestPostgresBackend(BackendContract):
    """The contract, over a table."""

    @pytest.fixture
    def open_backend(self, database: Database) -> OpenBackend:
        """A backend over a table with the rows."""

        @asynccontextmanager
        async def opened(rows: pa.Table, key: Sequence[str]) -> AsyncIterator[PostgresBackend]:
            async with PostgresBackend(put_table(database, rows, key=key)) as backend:
                yield backend

        return opened
