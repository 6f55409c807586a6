"""PostgreSQL server facts, read over one session, and the dimensions that use it."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import asyncpg

from lookup_core.settings import CacheMode
from service.adapter_settings import postgres_settings
from service.config.dimension import DimensionConfig
from service.config.source import PostgresSource
from service.connectors.postgres.catalog import CatalogRow
from service.connectors.postgres.connections import close_session
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.settings import PostgresSettings
from service.doctor.sidecar.clock import ClockReading

# Sessions of others are counted by any role, though it may not see what kind they are of.
_SERVER = """
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
       pg_catalog.current_setting('server_version') AS version_text,
       current_user::text AS role, pg_catalog.current_database()::text AS database,
       pg_catalog.pg_backend_pid() AS process,
       pg_catalog.current_setting('port') || ' since ' || pg_catalog.date_part(
           'epoch', pg_catalog.pg_postmaster_start_time())::text AS identity,
       pg_catalog.pg_is_in_recovery() AS is_standby,
       pg_catalog.current_setting('statement_timeout') AS statement_timeout,
       pg_catalog.current_setting('max_connections')::int AS max_connections,
       pg_catalog.current_setting('superuser_reserved_connections')::int
       + coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int AS reserved,
       a.used, a.of_sidecars, a.of_role, a.of_database, r.rolsuper AS is_superuser,
       r.rolbypassrls AS bypasses_policies, r.rolconnlimit AS role_limit,
       d.datconnlimit AS database_limit,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) AS clock_s
FROM pg_catalog.pg_roles r
CROSS JOIN pg_catalog.pg_database d
CROSS JOIN (SELECT count(*) AS used,
                   count(*) FILTER (WHERE application_name LIKE 'sidelook%') AS of_sidecars,
                   count(*) FILTER (WHERE usename = current_user) AS of_role,
                   count(*) FILTER (WHERE datname = pg_catalog.current_database()) AS of_database
            FROM pg_catalog.pg_stat_activity
            WHERE datid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
            AND coalesce(backend_type, 'client backend') = 'client backend') AS a
WHERE r.rolname = current_user AND d.datname = pg_catalog.current_database()
"""


@dataclass(frozen=True, slots=True)
class Room:
    """How many connections there may be, how many there are, of all and of sidecars."""

    max_connections: int = 100
    reserved: int = 3  # for superusers, and for those who are preferred
    used: int = 0
    of_sidecars: int = 0
    of_role: int = 0
    role_limit: int | None = None
    of_database: int = 0
    database_limit: int | None = None


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """The server that was reached, and as whom."""

    version: int  # such as 160004
    version_text: str
    role: str
    database: str
    clock: ClockReading
    room: Room
    is_pooled: bool = False  # a PgBouncer stands between
    is_standby: bool = False
    is_superuser: bool = False
    bypasses_policies: bool = False
    has_statement_timeout: bool = True
    # Port and microsecond of its start: any role may ask, and whatever address leads there, they
    # are the same. The system identifier is that of its standbys, too.
    identity: str = ""


async def visit_postgres_server(settings: PostgresSettings) -> PostgresServer:
    """Ask it; raises BackendError, within the connect timeout and two seconds more."""
    with mapped_errors(settings.table):
        async with asyncio.timeout(settings.connect_timeout_s):
            session = await asyncpg.connect(
                settings.dsn,
                server_settings=settings.server_settings,
                statement_cache_size=settings.statement_cache_size,
            )
        process = session.get_server_pid()
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                await session.fetchval("SELECT 1")  # what a first query costs is no clock's fault
                asked_s = time.time()
                record = await session.fetchrow(_SERVER)
                answered_s = time.time()
        finally:
            await close_session(session)
    assert record is not None  # whoever is connected has a role and a database
    clock = ClockReading(asked_s, answered_s, record["clock_s"])
    # A pooler gives each of its clients a process number of its own making.
    return _server(record, clock, is_pooled=record["process"] != process)


def _server(record: CatalogRow, clock: ClockReading, *, is_pooled: bool) -> PostgresServer:
    return PostgresServer(
        version=record["version"],
        version_text=record["version_text"],
        role=record["role"],
        database=record["database"],
        clock=clock,
        room=Room(
            max_connections=record["max_connections"],
            reserved=record["reserved"],
            used=record["used"],
            of_sidecars=record["of_sidecars"],
            of_role=record["of_role"],
            role_limit=_limit(record["role_limit"]),
            of_database=record["of_database"],
            database_limit=_limit(record["database_limit"]),
        ),
        is_pooled=is_pooled,
        is_standby=record["is_standby"],
        is_superuser=record["is_superuser"],
        bypasses_policies=record["bypasses_policies"],
        has_statement_timeout=record["statement_timeout"] != "0",
        identity=record["identity"],
    )


def _limit(number: int) -> int | None:
    return None if number < 0 else number  # -1: none


_OF_LOADING = 5  # a whole table: the session with the snapshot, and four readers
_OF_LISTENING = 1
_USER = re.compile(r"\w+://([^:@/?#]+)(?::[^@/?#]*)?@", re.ASCII)
_DATABASE = re.compile(r"/([^/?#@]*)(?:\?[^@]*)?$")


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """The dimensions whose tables are reached by one DSN, and how the first of them is."""

    settings: PostgresSettings
    dimensions: Mapping[str, DimensionConfig] = field(repr=False)

    @property
    def address(self) -> str:
        """Which database it is, without a password, even one that is written in a wrong place."""
        hosts = self.settings.address
        if not hosts:
            return f"the database of {', '.join(self.dimensions)}"
        user = _USER.match(self.settings.dsn)
        database = _DATABASE.search(self.settings.dsn.partition("://")[2])
        place = f"{hosts}/{database[1]}" if database else hosts
        return f"{user[1]}@{place}" if user else place

    @property
    def is_listened_to(self) -> bool:
        """Whether any dimension hears of its changes by notifications."""
        return any(each.refresh.listen is not None for each in self.dimensions.values())

    @property
    def connections(self) -> int:
        """How many one executor's sidecar opens at most."""
        return sum(map(connections_of, self.dimensions.values()))


def connections_of(config: DimensionConfig) -> int:
    """How many connections one dimension opens at most."""
    loading = _OF_LOADING if config.cache.mode is CacheMode.FULL else 0
    listening = _OF_LISTENING if config.refresh.listen is not None else 0
    return config.batch.max_in_flight + loading + listening


def postgres_places(dimensions: Mapping[str, DimensionConfig]) -> list[PostgresPlace]:
    """One for each distinct address, in the order of the configuration; raises OSError."""
    settings: dict[tuple[str, bool], PostgresSettings] = {}
    members: dict[tuple[str, bool], dict[str, DimensionConfig]] = {}
    for name, config in dimensions.items():
        if isinstance(config.source, PostgresSource):
            of_one = postgres_settings(config, config.source)
            place = (of_one.dsn, of_one.pgbouncer)
            settings.setdefault(place, of_one)
            members.setdefault(place, {})[name] = config
    return [PostgresPlace(settings[place], members[place]) for place in settings]
