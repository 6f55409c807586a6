"""The connections to one PostgreSQL server, and queries over them that end in time.

Knows nothing of tables and keys. `pool.fetch(timeout=…)` is not used: on a network that swallows
everything it waits for the cancellation to be acknowledged, longer than any timeout.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from lookup_core.errors import BackendError, ErrorCode
from service.backends.postgres_errors import explained, mapped_errors
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

# What the server is, and a wish that a pooler could not keep for us: sessions whose client is gone
# end soon, also in the middle of a query, so that they never add up beyond the pool.
_GREETING = """
SELECT CASE WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
             AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE')
            THEN (SELECT system_identifier FROM pg_catalog.pg_control_system())
                 || '/' || (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()) END,
       CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 140000
            THEN pg_catalog.set_config('client_connection_check_interval', '250ms', false) END
"""

Records: TypeAlias = list[asyncpg.Record]
_Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"  # generic in the stubs only


class PostgresSession(asyncpg.Connection):
    """A connection that knows whom it reached."""

    __slots__ = ("store",)

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  passed on
        super().__init__(*arguments, **options)
        self.store: str | None = None  # until it was asked

    def note_store(self, store: str) -> None:
        """Remember whom it reached; the pool's proxy does not forward assignments."""
        self.store = store


@dataclass(frozen=True, slots=True)
class Reply:
    """The rows of a query, and which server sent them, if it says so."""

    records: Records
    store: str


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
            connection_class=PostgresSession,
        )

    async def close(self) -> None:
        """Close all connections; those that do not answer are terminated. Never raises."""
        assert self._pool is not None
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._pool.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()  # a dead server or network; nothing is lost, we only read

    async def run(self, query: str, arguments: Sequence[Any], *, timeout_s: float) -> Reply:
        """The rows of one query.

        Raises BackendError within `timeout_s`; `connection_lost` asks for another try at once: that
        a server was restarted shows only when its old connections are used. Cancellation
        terminates the connection and waits for nothing; the server ends the query at its
        statement timeout.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        with mapped_errors(self._settings.table):
            connection = await self._acquire(deadline_s)
            store = await self._greet(connection, deadline_s)
            records = await self._ask(connection, query, arguments, deadline_s=deadline_s)
            assert self._pool is not None
            await self._pool.release(connection)
        return Reply(records, store)

    async def expire(self) -> None:
        """Let no connection be used again: the network may have dropped them without a word."""
        assert self._pool is not None
        await self._pool.expire_connections()

    async def _acquire(self, deadline_s: float) -> _Connection:
        assert self._pool is not None, "open comes first"
        async with asyncio.timeout_at(deadline_s):
            return await self._pool.acquire()

    async def _greet(self, connection: _Connection, deadline_s: float) -> str:
        """Whom the connection reached; asked once in its life.

        Not in asyncpg's own hook for new connections: that says goodbye to a dead network as
        politely as to a living one, without an end.
        """
        if self._settings.pgbouncer:
            return ""  # each query may reach another session
        session = cast("PostgresSession", connection)  # the pool's proxy forwards to it
        if session.store is None:
            records = await self._ask(connection, _GREETING, [], deadline_s=deadline_s)
            session.note_store(records[0][0] or "")
        assert session.store is not None
        return session.store

    async def _ask(
        self, connection: _Connection, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> Records:
        assert self._pool is not None
        try:
            async with asyncio.timeout_at(deadline_s):
                records: Records = await connection.fetch(query, *arguments)
        except _BROKEN as error:  # the pool has seen it, and let go of the connection
            detail = f"{self._settings.table}: {explained(error)[1]}"
            raise BackendError(ErrorCode.CONNECTION_LOST, detail) from error
        except asyncpg.PostgresError:
            await self._pool.release(connection)  # only the query failed
            raise
        except TimeoutError as error:
            connection.terminate()
            detail = f"{self._settings.table}: no answer from the server in time"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except BaseException:
            connection.terminate()  # interrupted in the middle: what comes next on it is unknown
            raise
        return records


async def _keep(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Reset nothing: a query changes no session, and a reset is a round trip for each of them."""
