"""The connections to one PostgreSQL server, and queries over them that end in time.

Knows nothing of tables and keys. `pool.fetch(timeout=…)` is not used: on a network that swallows
everything it waits for the cancellation to be acknowledged, longer than any timeout.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from lookup_core.errors import BackendError, ErrorCode
from service.backends.postgres_errors import mapped_errors
from service.backends.postgres_settings import PostgresSettings

_CLOSE_TIMEOUT_S = 0.9
_NEVER = (
    2**62
)  # queries per connection: the pool would close it politely, i.e. wait for the network


_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    ConnectionError,
)

Records: TypeAlias = list[asyncpg.Record]
_Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"  # generic in the stubs only


class PostgresConnections:
    """A pool of sessions that only read; opened when they are needed."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Make the pool; no connection yet."""
        settings = self._settings
        self._pool = await asyncpg.create_pool(
            settings.dsn,
            min_size=0,
            max_size=settings.max_connections,
            max_queries=_NEVER,
            reset=_keep,
            timeout=settings.connect_timeout_s,
            server_settings=settings.server_settings,
            statement_cache_size=settings.statement_cache_size,
        )

    async def close(self) -> None:
        """Close all connections; those that do not answer are terminated. Never raises."""
        assert self._pool is not None
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._pool.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()  # a dead server or network; nothing is lost, we only read

    async def run(self, query: str, arguments: Sequence[Any], *, timeout_s: float) -> Records:
        """The rows of one query.

        Raises BackendError within `timeout_s`. A query whose connection breaks is asked once more:
        that a server was restarted shows only when its old connections are used. Cancellation
        terminates the connection and waits for nothing; the server ends the query at its
        statement timeout.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        with mapped_errors(self._settings.table):
            connection = await self._acquire(deadline_s)
            try:
                return await self._ask(connection, query, arguments, deadline_s=deadline_s)
            except _BROKEN:
                connection = await self._acquire(deadline_s)
            return await self._ask(connection, query, arguments, deadline_s=deadline_s)

    async def _acquire(self, deadline_s: float) -> _Connection:
        assert self._pool is not None, "open comes first"
        async with asyncio.timeout_at(deadline_s):
            return await self._pool.acquire()

    async def _ask(
        self, connection: _Connection, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> Records:
        assert self._pool is not None
        try:
            async with asyncio.timeout_at(deadline_s):
                records: Records = await connection.fetch(query, *arguments)
        except asyncpg.PostgresError:
            await self._pool.release(connection)  # only the query failed; else the pool sees it
            raise
        except TimeoutError as error:
            connection.terminate()
            detail = f"{self._settings.table}: no answer from the server in time"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except BaseException:
            connection.terminate()  # interrupted in the middle: what comes next on it is unknown
            raise
        await self._pool.release(connection)
        return records


async def _keep(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Reset nothing: a query changes no session, and a reset is a round trip for each of them."""
