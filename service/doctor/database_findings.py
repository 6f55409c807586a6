"""What the facts of a PostgreSQL server mean for a sidecar that looks rows up in it.

Pure; tables and room for connections have modules of their own.
"""

from collections.abc import Iterator

from service.backends.postgres_table import quoted
from service.doctor.finding import Finding, Matter
from service.doctor.postgres_server import PostgresServer

OLDEST_VERSION = 130000


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
