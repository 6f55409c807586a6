"""Closing a connection, whatever the server does; real ones are closed in tests/integration."""

import asyncio
from typing import cast

import asyncpg
import pytest

from service.connectors.postgres.connections import close_session


class Connection:
    """One whose server says goodbye, or fails to in some way."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.is_terminated = False
        self._fault = fault

    async def close(self) -> None:
        """Say goodbye."""
        if self._fault is not None:
            raise self._fault

    def terminate(self) -> None:
        """Let go."""
        self.is_terminated = True


@pytest.mark.parametrize(
    "fault",
    [None, ConnectionResetError(), TimeoutError(), asyncpg.InterfaceError("closed already")],
)
async def test_connection_is_gone_afterwards(fault: Exception | None) -> None:
    """Nothing is raised, however the server takes it."""
    connection = Connection(fault)

    await close_session(cast("asyncpg.Connection[asyncpg.Record]", connection))

    assert connection.is_terminated


async def test_cancellation_leaves_no_connection() -> None:
    """Who is in a hurry does not wait for the server."""
    connection = Connection(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await close_session(cast("asyncpg.Connection[asyncpg.Record]", connection))

    assert connection.is_terminated
