"""Asking a server about itself; for a real one see tests/integration/test_doctor_postgres.py."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.settings import PostgresSettings
from service.doctor.backends.postgres_server import visit_postgres_server


async def test_server_that_is_away_is_an_error() -> None:
    """Nobody there is an error of the store, as the sidecar has it."""
    settings = PostgresSettings("postgresql://me@127.0.0.1:1/d", "t", ("id",))

    with pytest.raises(BackendError) as caught:
        await visit_postgres_server(settings)

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
