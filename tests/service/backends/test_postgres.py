"""The backend without its database: opening works, and describing says what is wrong in time."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from tests.grace import GRACE_S

PATIENCE_S = 10.0  # beyond which the fault would be another one


def backend_without_server(folder: Path) -> PostgresBackend:
    """A backend whose socket folder is empty."""
    dsn = f"postgresql://postgres@/shop?host={folder}"
    return PostgresBackend(PostgresSettings(dsn, "public.customers", ("id",)))


async def test_opens_without_its_database(tmp_path: Path) -> None:
    """Opening and closing need no database: a sidecar starts while its database is down."""
    async with asyncio.timeout(GRACE_S), backend_without_server(tmp_path):
        pass


async def test_describing_a_dead_database_fails(tmp_path: Path) -> None:
    """Without the database, describing raises a retryable error that names the table."""
    async with backend_without_server(tmp_path) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.is_retryable
    assert caught.value.detail.startswith("public.customers: ")


async def test_fetching_needs_a_description(tmp_path: Path) -> None:
    """Keys of no described type cannot be asked: that is a bug of the caller."""
    async with backend_without_server(tmp_path) as backend:
        with pytest.raises(AssertionError, match="describe comes first"):
            await backend.fetch(pa.record_batch({"id": [1]}), timeout_s=1.0)


async def test_dead_database_gives_no_sign_of_life(tmp_path: Path) -> None:
    """A probe fails as a fetch would; whether there is an index is not known yet."""
    async with backend_without_server(tmp_path) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.probe(timeout_s=PATIENCE_S)

        assert backend.uses_index is None
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
