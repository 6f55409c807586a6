"""PostgreSQL connections outside the pool, of loads and listeners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.connections import CLOSE_TIMEOUT_S, Connection
from service.connectors.postgres.errors import mapped_errors, mapped_parameters
from service.connectors.postgres.host_names import HOST_NAMES
from service.connectors.postgres.session_settings import READ_COMMITTED
from service.connectors.postgres.settings import PostgresSettings


class DedicatedSession:
    """One connection outside the pool, of a load or a listener."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._connection: Connection | None = None

    async def close(self) -> None:
        """Close the connection; terminate it after a second, or on cancellation. Never raises."""
        if self._connection is not None and not self._connection.is_closed():
            await close_session(self._connection)

    @asynccontextmanager
    async def bounded(self, timeout_s: float) -> AsyncIterator[None]:
        """Raise BackendError in time; the connection is terminated unless the block succeeds."""
        with ExitStack() as stack, mapped_errors(self._table, sends_keys=False):
            stack.callback(self._terminate)
            async with asyncio.timeout(timeout_s):
                yield
            stack.pop_all()

    def failure(self, code: ErrorCode, reason: str) -> BackendError:
        """The error of this table."""
        return BackendError(code, f"{self._table}: {reason}")

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


async def dedicated_connection(settings: PostgresSettings, purpose: str) -> Connection:
    """A connection of a `DedicatedSession`; the server shows its purpose as application name."""
    isolation = {} if settings.pgbouncer else READ_COMMITTED
    with mapped_parameters():
        return await asyncpg.connect(
            await HOST_NAMES.resolved_dsn(settings),
            timeout=settings.connect_timeout_s,
            server_settings={"application_name": f"sidelook {purpose}", **isolation},
            statement_cache_size=settings.statement_cache_size,
        )


async def close_session(connection: Connection) -> None:
    """Close the connection; terminate it after a second, or on cancellation. Never raises."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass  # it is closed, and nothing was written
    finally:
        connection.terminate()
