"""What the facts of a PostgreSQL server mean for a sidecar that looks rows up in it.

Pure; tables have a module of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from service.backends.postgres_table import quoted
from service.doctor.finding import Finding, Matter
from service.doctor.postgres_server import PostgresServer, Room

OLDEST_VERSION = 130000
_WARNING_SHARE = 0.8  # of the connections that there may be


@dataclass(frozen=True, slots=True)
class Demand:
    """How many connections a sidecar opens, and how many sidecars there are to be."""

    connections: int
    executors: int | None = None  # None: nobody said


def server_findings(
    matter: Matter, server: PostgresServer, *, says_pgbouncer: bool, listens: bool
) -> Iterator[Finding]:
    """Version, role, and what kind of server it is."""
    if server.version < OLDEST_VERSION:
        yield matter.error(
            f"is PostgreSQL {server.version_text}", "update the server to version 13 or newer"
        )
    else:
        yield matter.ok(f"is PostgreSQL {server.version_text}, let in as {server.role}")
    if server.is_superuser or server.bypasses_policies:
        right = "is a superuser" if server.is_superuser else "has BYPASSRLS"
        yield matter.warning(
            f"role {server.role} {right}; a sidecar needs SELECT only",
            "CREATE ROLE sidelook LOGIN; GRANT SELECT on the tables to it, and use it in the DSN",
        )
    if server.is_standby and listens:
        yield matter.error(
            "is a standby, where nobody can listen",
            "name the primary besides in the DSN (host1,host2), or use refresh.changelog",
        )
    elif server.is_standby:
        yield matter.ok("is a standby: what is read lags the primary")
    yield from _pooler_findings(
        Matter("pgbouncer", matter.subject), server, says_pgbouncer=says_pgbouncer, listens=listens
    )


def _pooler_findings(
    matter: Matter, server: PostgresServer, *, says_pgbouncer: bool, listens: bool
) -> Iterator[Finding]:
    if server.is_pooled and not says_pgbouncer:
        yield matter.error(
            "the address is that of a PgBouncer, and the configuration does not say so",
            "set source.pgbouncer: true, or name the server itself",
        )
    elif says_pgbouncer and not server.is_pooled:
        yield matter.warning(
            "source.pgbouncer is true, and the address is the server's own: sessions have no "
            "statement timeout, and are not read-only",
            "leave source.pgbouncer out, or name the PgBouncer",
        )
    else:
        yield matter.ok(
            "there is one, as configured" if server.is_pooled else "there is none, as configured"
        )
    if server.is_pooled and listens:
        yield matter.error(
            "refresh.listen goes through a PgBouncer, which loses notifications",
            "name the server itself in the DSN of dimensions with refresh.listen",
        )
    if (server.is_pooled or says_pgbouncer) and not server.has_statement_timeout:
        yield matter.warning(
            f"role {server.role} has no statement_timeout, and the sidecar cannot set one there: "
            "queries that are given up go on",
            f"ALTER ROLE {quoted(server.role)} SET statement_timeout = '10s'",
        )


def connection_findings(
    matter: Matter, server: PostgresServer, demand: Demand
) -> Iterator[Finding]:
    """Whether so many executors find room at the server."""
    if server.is_pooled:
        yield matter.skipped(
            "the PgBouncer shares its connections out, whatever the executors open",
            "compare its default_pool_size and max_client_conn with "
            f"{demand.connections} connections for each executor",
        )
        return
    room_for_us = free_connections(server.room, is_superuser=server.is_superuser)
    each = f"{demand.connections} connections for each executor"
    fits = max(room_for_us, 0) // max(demand.connections, 1)
    remedy = (
        f"lower batch.max_in_flight, put a PgBouncer before the server, or raise the limit of "
        f"{_tightest(server.room, is_superuser=server.is_superuser)}"
    )
    if demand.executors is None:
        text = f"room for {room_for_us} of sidecars: {fits} executors ({each})"
        yield matter.ok(text) if fits else matter.error(text, remedy)
        return
    wanted = demand.executors * demand.connections
    text = f"{demand.executors} executors want {wanted} ({each}), and there is room for "
    if wanted > room_for_us:
        yield matter.error(f"{text}{room_for_us}, so for {fits} executors", remedy)
    elif wanted > _WARNING_SHARE * room_for_us:
        yield matter.warning(f"{text}{room_for_us}: little is left for others", remedy)
    else:
        yield matter.ok(f"{text}{room_for_us}")


def free_connections(room: Room, *, is_superuser: bool) -> int:
    """How many all sidecars together may have: those that there are now count as free."""
    return min(free for free, _ in _rooms(room, is_superuser=is_superuser))


def _tightest(room: Room, *, is_superuser: bool) -> str:
    return min(_rooms(room, is_superuser=is_superuser))[1]


def _rooms(room: Room, *, is_superuser: bool) -> Iterator[tuple[int, str]]:
    reserved = 0 if is_superuser else room.reserved
    yield room.max_connections - reserved - room.used + room.of_sidecars, "max_connections"
    # Sidecars are not told apart by role or database: all of theirs are taken for ours.
    if room.role_limit is not None and not is_superuser:
        others = max(room.of_role - room.of_sidecars, 0)
        yield room.role_limit - others, "the role (ALTER ROLE … CONNECTION LIMIT)"
    if room.database_limit is not None and not is_superuser:
        others = max(room.of_database - room.of_sidecars, 0)
        yield room.database_limit - others, "the database (ALTER DATABASE … CONNECTION LIMIT)"
