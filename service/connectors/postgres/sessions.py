"""PostgreSQL sessions: their host names, the identity of their server, and those outside the pool.

The C library cannot interrupt the resolution of a host name. If the name server is silent, each
attempt to connect would take another of the loop's few threads, until no other name resolves and no
process ends: resolutions have threads of their own.

Each part of a server's identity is optional: managed services, revoked rights and other servers
with PostgreSQL's protocol lack some of them.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from threading import Thread
from typing import Any, Protocol, TypeAlias

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerIdentity
from service.connectors.postgres.errors import mapped_errors, mapped_parameters, own_statements
from service.connectors.postgres.settings import READ_COMMITTED, PostgresSettings
from service.postgres_dsn import host_names

CLOSE_TIMEOUT_S = 0.9
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"  # generic in the stubs only


def sql_text(name: str) -> str:
    """The SQL in a file of the folder `sql`."""
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text()


class CatalogRow(Protocol):
    """Columns of a row by name, or by position."""

    def __getitem__(self, name: Any, /) -> Any:  # noqa: ANN401  as the database returns it
        """The value of the column."""

    def keys(self) -> Iterable[str]:
        """The names of the columns."""


RunQuery: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Sequence[CatalogRow]]]


async def run_own(run: RunQuery, statement: str, *arguments: Any) -> Sequence[CatalogRow]:  # noqa: ANN401  of SQL
    """Run a statement on the catalog; its failure is not explained as a fault of the relation."""
    with own_statements():
        return await run(statement, arguments)


class Address(Protocol):
    """The settings of a connection that name its server."""

    @property
    def connect_timeout_s(self) -> float:
        """The time limit of an attempt."""

    def current_dsn(self) -> str:
        """The DSN with the current password."""


def _look_up(name: str) -> None:
    socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


@dataclass(slots=True, eq=False)
class HostNames:
    """Resolutions under way: at most one of each name, in a thread that outlives no process.

    Their result is whether the name was found.
    """

    look_up: Callable[[str], object] = _look_up
    _pending: dict[str, Future[bool]] = field(default_factory=dict)

    async def resolved_dsn(self, settings: Address) -> str:
        """The present DSN, once a name in it resolves, or all have failed, or it has none.

        Raises socket.gaierror after the connect timeout.
        """
        dsn = settings.current_dsn()
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                for name in host_names(dsn):
                    if await asyncio.wrap_future(self._resolution(name)):
                        break
        except TimeoutError as error:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer in time") from error
        return dsn

    def _resolution(self, name: str) -> Future[bool]:
        found = self._pending.get(name)
        if found is None:
            found = self._pending[name] = Future()
            found.set_running_or_notify_cancel()  # no waiting attempt cancels it for the others
            try:
                Thread(target=self._resolve, args=(name, found), daemon=True).start()
            except RuntimeError as error:  # at the limit of threads
                del self._pending[name]
                raise OSError(errno.EAGAIN, "no thread to resolve a host name") from error
        return found

    def _resolve(self, name: str, resolution: Future[bool]) -> None:
        is_found = False
        try:
            with suppress(OSError, UnicodeError):  # the attempt to connect meets it, too
                self.look_up(name)
                is_found = True
        finally:
            del self._pending[name]
            resolution.set_result(is_found)


HOST_NAMES = HostNames()  # of the process, as the resolver is


@dataclass(frozen=True, slots=True)
class IdentityPart:
    """One part of the identity, and what is not found without it."""

    sql: str
    functions: tuple[str, ...]  # that the role must be allowed to execute
    loss: str


# The control file's timeline lags until the first checkpoint after a promotion; the name of the
# present file of the log does not. In recovery there is no present file.
PARTS = {
    "system": IdentityPart(
        "(SELECT s.system_identifier::text FROM pg_catalog.pg_control_system() AS s)",
        ("pg_control_system()",),
        "other clusters at its address are found by their start only",
    ),
    "database_id": IdentityPart(
        "(SELECT d.oid FROM pg_catalog.pg_database AS d"
        " WHERE d.datname = pg_catalog.current_database())",
        ("current_database()",),
        "a recreated database is not found",
    ),
    "is_standby": IdentityPart(
        "pg_catalog.pg_is_in_recovery()",
        ("pg_is_in_recovery()",),
        "failovers and restarts are not found",
    ),
    "timeline": IdentityPart(
        "CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.substr("
        "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END",
        ("pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)"),
        "failovers are found by the start of the server only",
    ),
    "replayed_timeline": IdentityPart(
        "(SELECT greatest(c.timeline_id, r.min_recovery_end_timeline)"
        " FROM pg_catalog.pg_control_checkpoint() AS c, pg_catalog.pg_control_recovery() AS r"
        " WHERE pg_catalog.pg_is_in_recovery())",
        ("pg_control_checkpoint()", "pg_control_recovery()"),
        "failovers are not found while only standbys answer",
    ),
    "started_at": IdentityPart(
        "(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) * 1000000)::int8",
        ("pg_postmaster_start_time()",),
        "restarts, and copies with the same timeline, are not found",
    ),
}
# Classes of SQLSTATE that say nothing of the statement: lack of memory, shutdown, timeout, disk.
_PASSING = frozenset({"53", "57", "58"})

Fetch: TypeAlias = Callable[[str], Awaitable[Sequence[Any]]]


class Identification:
    """Reads identities in one statement; a part that the server refuses is not read again."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()  # parts that the server refuses

    async def read(self, fetch: Fetch) -> ServerIdentity:
        """The identity of the server of a session.

        Raises the errors of `fetch`, except that a part is unknown if its statement is refused.
        """
        parts = [part for part in PARTS if part not in self.unknown]
        values = await self._values(parts, fetch)
        if values is None:
            values = {}
            for part in parts:
                found = await self._values([part], fetch)
                if found is None:
                    self.unknown.add(part)
                values |= found or {}
        return _identity(**values)

    async def _values(self, parts: Sequence[str], fetch: Fetch) -> dict[str, Any] | None:
        """The values of the parts; None if the server refuses one of them."""
        if not parts:
            return {}
        columns = ", ".join(f"{PARTS[part].sql} AS {part}" for part in parts)
        try:
            (record,) = await fetch(f"SELECT {columns}")
        except asyncpg.PostgresError as error:
            if str(error.sqlstate)[:2] in _PASSING:
                raise
            return None
        return dict(record)


def _identity(
    *,
    timeline: str | None = None,
    replayed_timeline: int | None = None,
    **others: Any,  # noqa: ANN401  the columns of the statement
) -> ServerIdentity:
    exact = None if timeline is None else int(timeline, 16)
    return ServerIdentity(timeline=exact or replayed_timeline, **others)


class DedicatedSession:
    """One connection outside the pool, of a load or a listener."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection."""
        assert self._connection is not None, "opening comes first"
        return self._connection

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
