"""PostgreSQL connections of one server: a pool, queries with a hard time limit, closing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.errors import explained, mapped_errors
from service.connectors.postgres.settings import PostgresSettings

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

# What the server is, and wishes that a pooler could not keep for us. Nothing is written: a session
# that started with that wish would pass for a server that only reads, and `read-write` in the DSN
# would find none. Sessions whose client is gone end soon, also in the middle of a query, so that
# they never add up beyond the pool.
_GREETING = """
SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
       AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE'),
       pg_catalog.set_config('default_transaction_read_only', 'on', false),
       CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 140000
            THEN pg_catalog.set_config('client_connection_check_interval', '250ms', false) END
"""
# Only for who may ask so: the server checks that before it looks at any condition around it.
_IDENTITY = """
SELECT system.system_identifier || '/' || checkpoint.timeline_id
FROM pg_catalog.pg_control_system() AS system, pg_catalog.pg_control_checkpoint() AS checkpoint
"""

# Whether an index can be used, not whether it pays for a table that is small today.
_PLANNING = (("BEGIN READ ONLY", ()), ("SET LOCAL enable_seqscan = off", ()))

Records: TypeAlias = list[asyncpg.Record]
_Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"  # generic in the stubs only


class PostgresSession(asyncpg.Connection):
    """A connection that knows whom it reached, and how old it is."""

    __slots__ = ("generation", "store")

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  passed on
        super().__init__(*arguments, **options)
        self.store: str | None = None  # until it was asked
        self.generation: int | None = None  # until it is used

    def is_of(self, generation: int) -> bool:
        """Whether it belongs to this generation, as it does for ever once it was used in it."""
        if self.generation is None:
            self.generation = generation
        return self.generation == generation

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
        self._generation = 0  # of connections; those of earlier ones are not used any more
        self._store = ""  # whom the youngest connection reached

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
            connect=self._connect,
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
            await self._release(connection)
        return Reply(records, store)

    async def plan(self, query: str, arguments: Sequence[Any], *, timeout_s: float) -> str:
        """How the server would run a query where it may use indexes only, as JSON; see `run`."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        explain = f"EXPLAIN (FORMAT JSON) {query}"
        with mapped_errors(self._settings.table):
            connection = await self._acquire(deadline_s)
            await self._greet(connection, deadline_s)
            for statement, values in _PLANNING:
                await self._ask(connection, statement, values, deadline_s=deadline_s)
            records = await self._ask(connection, explain, arguments, deadline_s=deadline_s)
            await self._ask(connection, "ROLLBACK", [], deadline_s=deadline_s)
            await self._release(connection)
        return str(records[0][0])

    def expire(self) -> None:
        """Let no connection be used again, once those in use have done what they do.

        Not the pool's own way, which says goodbye to each of them, and on a network that swallows
        everything waits for the answer.
        """
        self._generation += 1

    async def _connect(self, *_first_dsn: Any, **options: Any) -> PostgresSession:  # noqa: ANN401  passed on
        # The pool would go on with a password that was rotated long ago.
        session = await asyncpg.connect(self._settings.current_dsn(), **options)
        return cast("PostgresSession", session)

    async def _acquire(self, deadline_s: float) -> _Connection:
        assert self._pool is not None, "open comes first"
        async with asyncio.timeout_at(deadline_s):
            while True:  # each round ends an old connection, and new ones are of this generation
                connection = await self._connected(self._pool)
                session = _session(connection)
                if session.is_of(self._generation):
                    return connection
                connection.terminate()

    async def _connected(self, pool: "asyncpg.Pool[asyncpg.Record]") -> _Connection:
        try:
            return await pool.acquire()
        except OSError as error:
            code, reason = explained(error)
            where = f" ({address})" if (address := self._settings.address) else ""
            raise BackendError(code, f"{self._settings.table}: {reason}{where}") from error

    async def _release(self, connection: _Connection) -> None:
        assert self._pool is not None
        await self._pool.release(connection)

    async def _greet(self, connection: _Connection, deadline_s: float) -> str:
        """Whom the connection reached; asked once in its life.

        Not in asyncpg's own hook for new connections: that says goodbye to a dead network as
        politely as to a living one, without an end.
        """
        if self._settings.pgbouncer:
            return ""  # each query may reach another session
        session = _session(connection)
        if session.store is not None:
            return session.store
        note_store = session.note_store  # of the connection itself: the pool may let go of it
        records = await self._ask(connection, _GREETING, [], deadline_s=deadline_s)
        store = ""
        if records[0][0]:
            records = await self._ask(connection, _IDENTITY, [], deadline_s=deadline_s)
            store = str(records[0][0])
        note_store(store)
        if store and self._store not in {"", store}:
            self.expire()  # sessions that were greeted before may speak of a server that was
        self._store = store or self._store
        return store

    async def _ask(
        self, connection: _Connection, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> Records:
        try:
            async with asyncio.timeout_at(deadline_s):
                records: Records = await connection.fetch(query, *arguments)
        except _BROKEN as error:  # the pool has seen it, and let go of the connection
            raise self._lost(error) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if _is_gone(connection):
                raise self._lost(error) from error
            if isinstance(error, asyncpg.InterfaceError) or connection.is_in_transaction():
                connection.terminate()
            else:
                await self._release(connection)  # only the query failed
            raise
        except TimeoutError as error:
            connection.terminate()
            detail = f"{self._settings.table}: no answer from the server in time"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except BaseException:
            connection.terminate()  # interrupted in the middle: what comes next on it is unknown
            raise
        return records

    def _lost(self, error: BaseException) -> BackendError:
        # Where one connection broke, the others did, too: else each of them would cost a try.
        self.expire()
        detail = f"{self._settings.table}: {explained(error)[1]}"
        return BackendError(ErrorCode.CONNECTION_LOST, detail)


def _session(connection: _Connection) -> PostgresSession:
    return cast("PostgresSession", connection)  # the pool's proxy forwards to it


def _is_gone(connection: _Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True  # closed so long ago that the pool has let go of it


async def _keep(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Reset nothing: a query changes no session, and a reset is a round trip for each of them."""


async def close_session(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Close it within a second; a server that does not answer is left without. Never raises.

    Cancellation leaves no connection either.
    """
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass  # it is gone, and nothing is lost: nothing was written
    finally:
        connection.terminate()
