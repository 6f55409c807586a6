"""What a PostgreSQL server says of itself and of who asks, over one session that only reads.

Facts only; what they mean is decided in `database_findings`.
"""

import asyncio
import time
from dataclasses import dataclass

import asyncpg

from service.backends.catalog_row import CatalogRow
from service.backends.postgres_errors import mapped_errors
from service.backends.postgres_settings import PostgresSettings
from service.doctor.clock import ClockReading
from service.sources.postgres_goodbye import say_goodbye

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
            await say_goodbye(session)
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
