"""PostgreSQL servers of the doctor: properties, read in one session, and dimensions of a DSN."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from lookup_core.errors import BackendError
from lookup_core.settings import CacheMode
from service.config.dimension import DimensionConfig
from service.config.settings import Settings
from service.connectors.postgres import sql_text
from service.connectors.postgres.connections import PostgresPool, PostgresSession
from service.connectors.postgres.errors import PoolerParameterError, mapped_errors, own_statements
from service.connectors.postgres.sessions import PARTS, Identification, PostgresSettings
from service.doctor.clock_skew import ClockReading
from service.wiring.connector_settings import settings_by_address

_LOADING_CONNECTIONS = 5  # the session with the snapshot of a full load, and four readers
_LISTENING_CONNECTIONS = 1


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """Properties of a server, and of the role of the session; a limit of None is no limit."""

    version: int  # such as 160004
    version_text: str
    role: str
    database: str
    clock: ClockReading
    is_pooled: bool = False  # reached through a PgBouncer
    is_standby: bool = False
    is_superuser: bool = False
    bypasses_policies: bool = False
    has_statement_timeout: bool = True
    # Port and start time, which are equal for all addresses of the server; if it refuses its start
    # time, the address. The system identifier would also be equal for its standbys.
    identity: str = ""
    unknown_parts: tuple[str, ...] = ()  # the identity lacks them, and may miss another server
    revoked_functions: Sequence[str] = ()  # which these parts need
    max_connections: int = 100
    reserved: int = 3  # for superusers and pg_use_reserved_connections
    role_limit: int | None = None
    database_limit: int | None = None
    used: int | None = 0  # by all clients; None: the server does not show its sessions
    used_by_sidecars: int = 0
    used_by_role: int = 0
    used_by_database: int = 0


async def read_postgres_server(settings: PostgresSettings) -> PostgresServer:
    """Read the properties; raises BackendError within twice the connect timeout."""
    with own_statements(), mapped_errors(settings.table):
        async with PostgresPool(settings) as pool:
            session = await pool.acquire()
            try:
                async with asyncio.timeout(settings.connect_timeout_s):
                    return await _properties(session, settings)
            finally:
                session.terminate()


async def _properties(session: PostgresSession, settings: PostgresSettings) -> PostgresServer:
    await session.fetchval("SELECT 1")  # the first query of a session is slower
    sent_s = time.time()
    # Every session has a role and a database.
    (record,) = await session.fetch(sql_text("server", __package__))
    received_s = time.time()
    columns = dict(record)
    clock = ClockReading(sent_s, received_s, columns.pop("clock_s"))
    # A pooler gives its clients process numbers of its own.
    is_pooled = columns.pop("process") != session.get_server_pid()
    sessions = await _permitted(session, "sessions") or {"used": None}
    identification = Identification()
    found = await identification.read(session.fetch)
    unknown = tuple(part for part in PARTS if part in identification.unknown)
    functions = [name for part in unknown for name in PARTS[part].functions]
    revoked = await _permitted(session, "revoked_functions", functions) if functions else None
    start = settings.address if found.started_at is None else found.started_at
    return PostgresServer(
        clock=clock,
        is_pooled=is_pooled,
        is_standby=found.is_standby is True,
        identity=f"{columns.pop('port')} since {start}",
        unknown_parts=unknown,
        **columns,
        **sessions,
        **(revoked or {}),
    )


async def _permitted(
    session: PostgresSession, file: str, *arguments: object
) -> dict[str, Any] | None:
    """The record of a statement that no sidecar runs; None if the role has no right to it."""
    try:
        (record,) = await session.fetch(sql_text(file, __package__), *arguments)
    except asyncpg.InsufficientPrivilegeError:
        return None
    return dict(record)


@dataclass(frozen=True, slots=True)
class ConnectionDemand:
    """Connections that one executor opens at a server; the address has no password."""

    address: str
    server: PostgresServer
    connections: int


@dataclass(slots=True, eq=False)  # hashable by identity
class Database:
    """A DSN, its dimensions, and the settings of the first of them."""

    settings: PostgresSettings
    dimensions: dict[str, DimensionConfig] = field(repr=False)
    pool_connections: int = 4  # of all its pools
    server: PostgresServer | None = None  # None: not read yet, or not reachable

    async def read_server(self) -> PostgresServer:
        """Read the properties of the server; raises BackendError."""
        try:
            self.server = await read_postgres_server(self.settings)
        except BackendError as error:
            # PgBouncer refuses sessions with start-up settings that it does not support.
            if not isinstance(error.__cause__, PoolerParameterError):
                raise
            server = await read_postgres_server(replace(self.settings, pgbouncer=True))
            self.server = replace(server, is_pooled=True)
        return self.server

    @property
    def address(self) -> str:
        """User, hosts and database, without a password, even a misplaced one."""
        hosts = self.settings.address
        if not hosts:
            return f"the database of {', '.join(self.dimensions)}"
        dsn = urlsplit(self.settings.dsn)
        return f"{dsn.username}@{hosts}{dsn.path}" if dsn.username else f"{hosts}{dsn.path}"

    @property
    def listens(self) -> bool:
        """Whether any dimension uses notifications."""
        return any(each.refresh.listen is not None for each in self.dimensions.values())

    @property
    def connections(self) -> int:
        """Largest number of connections of one executor's sidecar."""
        configs = self.dimensions.values()
        loading = [each for each in configs if each.cache.mode is CacheMode.FULL]
        listening = [each for each in configs if each.refresh.listen is not None]
        dedicated = len(loading) * _LOADING_CONNECTIONS + len(listening) * _LISTENING_CONNECTIONS
        return self.pool_connections + dedicated


def databases_of(settings: Settings) -> list[Database]:
    """Return one database per DSN, in the order of the configuration; raises OSError."""
    found: dict[tuple[str, bool], Database] = {}
    for tables in settings_by_address(settings).values():
        first = next(iter(tables.values()))
        database = found.setdefault((first.dsn, first.pgbouncer), Database(first, {}, 0))
        # Different spellings of one address have pools of their own.
        database.pool_connections += settings.limits.database_connections
        database.dimensions |= {name: settings.dimensions[name] for name in tables}
    return list(found.values())
