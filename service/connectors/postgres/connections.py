"""PostgreSQL connection pool of a database, and queries of its tables with a hard time limit."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias, cast

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import (
    UNKNOWN_SERVER,
    ServerEpoch,
    ServerEpochs,
    ServerIdentity,
)
from service.connectors.ports.resource import Resource
from service.connectors.postgres import sql_text
from service.connectors.postgres.errors import explained, mapped_errors
from service.connectors.postgres.sessions import (
    CLOSE_TIMEOUT_S,
    Connection,
    Fetch,
    Identification,
    PostgresSettings,
    RunQuery,
    connected,
    fixed_settings,
)

_CHECK_TIMEOUT_S = 1.0
IDENTITY_S = 1.0  # a session may outlive the promotion of its server
RENEWAL_S = 60.0  # the address may have moved from a server that lives on
IDLE_S = 30.0  # then a connection is closed: a fleet would hold all that the server has
_UNLIMITED = 2**62  # queries per connection: the pool would wait for the network to close it

_BROKEN = (
    *(asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError),
    ConnectionError,
)

# Read-only is no startup parameter: the session would count as a read-only server, and
# `target_session_attrs=read-write` in the DSN would fail. A session whose client is gone ends soon,
# also during a query, and frees its slot, if the server's platform can notice it.
_READ_ONLY = {"default_transaction_read_only": "on"}
_CHECK_CLIENT = {"client_connection_check_interval": "250"}  # ms; from version 14
_SESSION = fixed_settings({**_READ_ONLY, **_CHECK_CLIENT}, is_local=False)
_SESSION_WITHOUT_CHECK = fixed_settings(_READ_ONLY, is_local=False)

_PLANNING = (
    "BEGIN READ ONLY",
    # A scan of a small table may be cheaper today than a usable index.
    "SET LOCAL enable_seqscan = off",
    # Behind PgBouncer, sessions lack this setting: hidden rows would be missing.
    "SET LOCAL row_security = off",
)
# The indexes of the tables that this transaction has planned with, their columns, and whether any
# equality can use them. The planner locks what it considers, so names need no schema. GIN, BRIN and
# bloom indexes are searched by any of their columns: `{}`.
_INDEXES = sql_text("plan_indexes")
_TRIAL_TIMEOUT = "SET LOCAL statement_timeout = '500ms'"

Records: TypeAlias = list[asyncpg.Record]


@dataclass(slots=True)
class _LastIdentity:
    """The last identification of a session, or of all sessions behind a pooler."""

    server: ServerEpoch | None = None  # None before the first query
    at_s: float = 0.0


class PostgresSession(asyncpg.Connection):
    """A connection with the identity of its server, and its generation in the pool."""

    __slots__ = ("generation", "last_identity")

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  passed on
        super().__init__(*arguments, **options)
        self.last_identity = _LastIdentity()
        self.generation: int | None = None  # None before the first use

    @property
    def is_new(self) -> bool:
        """Whether it was not used yet."""
        return self.generation is None

    def is_of(self, generation: int) -> bool:
        """Whether it was first used in this generation; its first use sets it."""
        if self.generation is None:
            self.generation = generation
        return self.generation == generation


@dataclass(frozen=True, slots=True)
class QueryReply:
    """The rows of a query, and its server."""

    records: Records
    server: ServerEpoch


class PostgresPool:
    """Pool of read-only sessions of one database, which are opened on demand.

    Of the settings, it uses those of connections and sessions; the table is not used.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self._generation = 0  # connections of earlier generations are not used again
        self._attempted_at_s = 0.0  # the last attempt to connect
        self._options: dict[str, Any] = {}  # as in the last attempt
        self._checks: set[asyncio.Task[None]] = set()  # at most one, of the address
        self.epochs = ServerEpochs()
        self.identification = Identification()
        self.last_identity = _LastIdentity()  # by any session

    @cached_property
    def _pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        """The pool of the running loop, without a connection."""
        settings = self.settings
        return asyncpg.create_pool(
            settings.dsn,
            min_size=0,
            max_size=settings.max_connections,
            max_queries=_UNLIMITED,
            max_inactive_connection_lifetime=IDLE_S,
            reset=_keep,
            timeout=settings.connect_timeout_s,
            server_settings=settings.server_settings,
            statement_cache_size=settings.statement_cache_size,
            connection_class=PostgresSession,
            connect=self._connect,
        )

    async def __aenter__(self) -> Self:
        """Create the pool, without a connection."""
        await self._pool
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections; terminate those whose server does not answer. Never raises."""
        for check in self._checks:
            check.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._pool.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()  # nothing is lost: sessions only read

    def expire(self) -> None:
        """Use no open connection again; running queries finish."""
        # The pool's `expire_connections` would wait for an answer to each goodbye.
        self._generation += 1

    async def acquire(self) -> PostgresSession:
        """A session of the present generation; raises the errors of asyncpg, and OSError.

        Each minute, a task opens one beside the pool: it finds another server at the address.
        """
        while True:  # ends: each round ends a connection that was used
            session = cast("PostgresSession", await self._pool.acquire())  # the proxy forwards
            if not session.is_new and _now_s() >= self._attempted_at_s + RENEWAL_S:
                self._begin_check()
            if session.is_of(self._generation):
                return session
            session.terminate()

    async def release(self, session: PostgresSession) -> None:
        """Return a session whose query has ended."""
        await self._pool.release(cast("Any", session))  # the proxy that `acquire` returned

    @property
    def server(self) -> ServerEpoch:
        """The server that answered last."""
        return self.last_identity.server or UNKNOWN_SERVER

    def on_identity(
        self, found: ServerIdentity, before: ServerEpoch | None, *, epoch: int
    ) -> ServerEpoch:
        """A session has identified its server; `epoch` is that of the moment before.

        Another server ends the use of older sessions. One that was found before the last switch
        causes no switch back.
        """
        if epoch != self.epochs.number:
            return ServerEpoch(epoch, found)
        server = self.epochs.note(found, None if before is None else before.identity)
        if server.number != epoch:
            self.expire()  # older sessions may belong to the previous server
            self.identification = Identification()  # it may refuse other parts
        return server

    async def _connect(self, *_first_dsn: Any, **options: Any) -> PostgresSession:  # noqa: ANN401  passed on
        # The pool would keep the first DSN, whose password may be rotated.
        self._attempted_at_s, self._options = _now_s(), options
        return cast("PostgresSession", await connected(self.settings, **options))

    def _begin_check(self) -> None:
        # Not by the caller, whose cancellation would lose its session.
        if not self._checks:
            check = asyncio.create_task(self._check_address())
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def _check_address(self) -> None:
        """Expire the sessions if a new one has another server; else they go on, also if it fails.

        The server may take no new session; the next need of one shows why.
        """
        epoch = self.epochs.number
        failures = (OSError, BackendError, asyncpg.PostgresError, asyncpg.InterfaceError)
        with suppress(*failures):
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                session = await self._connect(**self._options)
                try:
                    found = await self.identification.read(session.fetch)
                finally:
                    session.terminate()
            self.on_identity(found, None, epoch=epoch)


class PostgresConnections(Resource):
    """Queries of one table, in sessions of a pool; without a shared pool, in its own.

    `async with` opens and closes a pool of its own, without a connection; a shared one is open.
    """

    def __init__(self, settings: PostgresSettings, pool: PostgresPool | None = None) -> None:
        self.pool = pool or PostgresPool(settings)
        self._table = settings.table
        self._is_shared = pool is not None

    async def open(self, stack: AsyncExitStack) -> None:
        """Open a pool of its own."""
        if not self._is_shared:
            await stack.enter_async_context(self.pool)

    def confirmed(self, server: ServerEpoch, found: ServerIdentity) -> ServerEpoch:
        """The server of a reply, by what its statement found.

        Behind a pooler, both may differ: the rows count as of a former server, and the next query
        identifies its server.
        """
        if not found.is_other_than(server.identity):
            return server
        self.pool.last_identity.at_s = -math.inf
        return replace(server, number=server.number - 1)

    async def run(self, query: str, arguments: Sequence[Any], *, timeout_s: float) -> QueryReply:
        """Run one query; raises BackendError within `timeout_s`.

        After `connection_lost`, an immediate retry is useful: only the use of a connection shows
        that its server was restarted. Cancellation terminates the connection without waiting; the
        server ends the query at its statement timeout.
        """
        deadline_s = _now_s() + timeout_s
        return await self.run_until(query, arguments, deadline_s=deadline_s)

    async def run_until(
        self, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> QueryReply:
        """Run one query of several that end by this time of the event loop; raises as `run`."""
        with mapped_errors(self._table):
            session = await self._acquire(deadline_s)
            server = await self._identify(session, deadline_s)
            records = await self._fetch(session, query, arguments, deadline_s=deadline_s)
            await self.pool.release(session)
        return QueryReply(records, server)

    def until(self, deadline_s: float) -> RunQuery:
        """`run_until` this time, for the rows alone."""

        async def run(query: str, arguments: Sequence[Any]) -> Records:
            return (await self.run_until(query, arguments, deadline_s=deadline_s)).records

        return run

    async def plan(
        self, query: str, arguments: Sequence[Any], *, deadline_s: float, trial: str | None = None
    ) -> tuple[str, Records]:
        """The plan of a query without sequential scans, and the indexes of its tables.

        Raises as `run`; also `forbidden` if row-level security hides rows, even behind PgBouncer,
        and `table_unavailable` if the query `trial` writes.
        """
        explain = f"EXPLAIN (FORMAT JSON) {query}"
        with mapped_errors(self._table):
            session = await self._acquire(deadline_s)
            await self._identify(session, deadline_s)
            for statement in _PLANNING:
                await self._fetch(session, statement, (), deadline_s=deadline_s)
            records = await self._fetch(session, explain, arguments, deadline_s=deadline_s)
            indexes = await self._fetch(session, _INDEXES, (), deadline_s=deadline_s)
            if trial is None or await self._passes(session, trial, deadline_s):
                await self._fetch(session, "ROLLBACK", (), deadline_s=deadline_s)
                await self.pool.release(session)
        return records[0][0], indexes

    async def _passes(self, session: PostgresSession, trial: str, deadline_s: float) -> bool:
        """Whether the query succeeds in a read-only transaction; else the session is terminated.

        A row may have another fault, or come late: its own lookup reports it.
        """
        try:
            await self._fetch(session, _TRIAL_TIMEOUT, (), deadline_s=deadline_s)
            await self._fetch(session, trial, (), deadline_s=deadline_s)
        except asyncpg.ReadOnlySQLTransactionError as error:
            detail = f"{self._table}: {explained(error)[1]} ({error.args[0]})"
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail, is_permanent=True) from error
        except asyncpg.InsufficientPrivilegeError:
            raise  # as for all rows
        except asyncpg.PostgresError:
            return False
        return True

    async def _acquire(self, deadline_s: float) -> PostgresSession:
        async with asyncio.timeout_at(deadline_s):
            try:
                return await self.pool.acquire()
            except OSError as error:
                code, text = explained(error)
                reason, *remedy = text.split("; ")
                where = f" ({address})" if (address := self.pool.settings.address) else ""
                detail = "; ".join([f"{self._table}: {reason}{where}", *remedy])
                raise BackendError(code, detail) from error

    async def _identify(self, session: PostgresSession, deadline_s: float) -> ServerEpoch:
        """The server of the connection, queried again if the last answer is a second old.

        Not in asyncpg's hook for new connections: on a dead network, the hook closes a connection
        politely, without a time limit.
        """
        pool, now_s = self.pool, _now_s()
        # Behind a pooler, each query may reach another session.
        last = pool.last_identity if pool.settings.pgbouncer else session.last_identity
        before, epoch = last.server, pool.epochs.number
        if before is not None and now_s < last.at_s + IDENTITY_S:
            return before

        async def fetch(statement: str) -> Records:
            return await self._attempt(session, statement, (), deadline_s=deadline_s)

        try:
            if before is None and not pool.settings.pgbouncer:
                await _set_up(fetch)
            found = await pool.identification.read(fetch)
        except asyncpg.PostgresError:  # neither the query nor its table is the cause
            await self._release_failed(session)
            raise
        server = pool.on_identity(found, session.last_identity.server, epoch=epoch)
        if server.number == pool.epochs.number:
            last.server, last.at_s = server, now_s
            pool.last_identity.server = server
        return server

    async def _fetch(
        self, session: PostgresSession, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> Records:
        try:
            return await self._attempt(session, query, arguments, deadline_s=deadline_s)
        except asyncpg.PostgresError:
            await self._release_failed(session)
            raise

    async def _release_failed(self, session: PostgresSession) -> None:
        """Return a session of which only the query failed."""
        if session.is_in_transaction():
            session.terminate()
        else:
            await self.pool.release(session)

    async def _attempt(
        self, session: PostgresSession, query: str, arguments: Sequence[Any], *, deadline_s: float
    ) -> Records:
        """Run a statement; after PostgresError, and no other error, the session goes on."""
        try:
            async with asyncio.timeout_at(deadline_s):
                records: Records = await session.fetch(query, *arguments)
        except _BROKEN as error:  # the pool has released the connection
            if not _is_gone(session):  # the lost one is that of a foreign server
                session.terminate()
            raise self._lost(error) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if _is_gone(session):
                raise self._lost(error) from error
            if isinstance(error, asyncpg.InterfaceError):
                session.terminate()
            raise
        except TimeoutError as error:
            session.terminate()
            detail = f"{self._table}: the query timed out"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except BaseException:
            session.terminate()  # interrupted: the protocol state is unknown
            raise
        return records

    def _lost(self, error: BaseException) -> BackendError:
        # The other connections are probably lost, too: each would cost a retry.
        self.pool.expire()
        detail = f"{self._table}: {explained(error)[1]}"
        return BackendError(ErrorCode.CONNECTION_LOST, detail)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_gone(session: PostgresSession) -> bool:
    try:
        return session.is_closed()
    except asyncpg.InterfaceError:
        return True  # the pool has released it


async def _set_up(fetch: Fetch) -> None:
    """Set the parameters of a new session; not every platform can notice a lost client."""
    try:
        await fetch(_SESSION)
    except asyncpg.PostgresError:
        await fetch(_SESSION_WITHOUT_CHECK)


async def _keep(connection: Connection) -> None:
    """Skip the pool's reset, a round trip per query: queries change no session state."""
