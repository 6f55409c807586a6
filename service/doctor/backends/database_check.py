"""Database check: server settings, pooler, and room for all executors' connections."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import asyncpg

from lookup_core.errors import BackendError
from service.connectors.postgres.table import quoted
from service.doctor.backends.postgres_server import (
    PostgresPlace,
    PostgresServer,
    Room,
    visit_postgres_server,
)
from service.doctor.check import Seen, ServerDemand
from service.doctor.finding import Finding, Subject, trouble
from service.doctor.sidecar.clock import clock_findings

OLDEST_VERSION = 130000


def server_findings(
    matter: Subject, server: PostgresServer, *, says_pgbouncer: bool, listens: bool
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
        Subject("pgbouncer", matter.subject), server, says_pgbouncer=says_pgbouncer, listens=listens
    )


def _pooler_findings(
    matter: Subject, server: PostgresServer, *, says_pgbouncer: bool, listens: bool
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


_WARNING_SHARE = 0.8  # of the connections that there may be


@dataclass(frozen=True, slots=True)
class _Limit:
    """How many connections it leaves to all sidecars, and how many of one count against it."""

    name: str
    free: int
    wanted: int

    @property
    def fits(self) -> int:
        """How many executors it leaves room for."""
        return max(self.free, 0) // max(self.wanted, 1)


def judged(seen: Sequence[Seen], executors: int | None) -> list[Finding]:
    """The findings; demands of one server are one, after them."""
    findings = [each for each in seen if isinstance(each, Finding)]
    demands = [each for each in seen if isinstance(each, ServerDemand)]
    return [*findings, *connection_findings(demands, executors)]


def connection_findings(
    demands: Sequence[ServerDemand], executors: int | None
) -> Iterator[Finding]:
    """Of each server, whether so many executors find room; None: nobody said how many."""
    for demand in demands:
        if demand.server.is_pooled:
            yield Subject("connections", demand.address).skipped(
                "the PgBouncer shares its connections out, whatever the executors open",
                "compare its default_pool_size and max_client_conn with "
                f"{demand.connections} connections for each executor",
            )
    own = [each for each in demands if not each.server.is_pooled]
    own.sort(key=lambda each: each.server.identity)
    for _, group in groupby(own, key=lambda each: each.server.identity):
        yield _server_finding(list(group), executors)


def _server_finding(demands: Sequence[ServerDemand], executors: int | None) -> Finding:
    matter = Subject("connections", ", ".join(each.address for each in demands))
    limit = min(_limits(demands), key=lambda each: (each.fits, each.free))
    each = f"{limit.wanted} connections for each executor"
    remedy = (
        "lower batch.max_in_flight, put a PgBouncer before the server, or raise the limit of "
        f"{limit.name}"
    )
    if executors is None:
        text = (
            f"room for {_executors(limit.fits)}: of {max(limit.free, 0)} connections that are left "
            f"for sidecars each takes {limit.wanted}"
        )
        return matter.ok(text) if limit.fits else matter.error(text, remedy)
    wanted = executors * limit.wanted
    verb = "wants" if executors == 1 else "want"
    text = f"{_executors(executors)} {verb} {wanted} ({each}), and there is room for "
    if wanted > limit.free:
        return matter.error(f"{text}{limit.free}, so for {_executors(limit.fits)}", remedy)
    if wanted > _WARNING_SHARE * limit.free:
        return matter.warning(f"{text}{limit.free}: little is left for others", remedy)
    return matter.ok(f"{text}{limit.free}")


def _executors(count: int) -> str:
    return f"{count} executor{'' if count == 1 else 's'}"


def _limits(demands: Sequence[ServerDemand]) -> Iterator[_Limit]:
    """The server's own over all demands, and those of the roles and databases of each."""
    for one in demands:
        room, is_superuser = one.server.room, one.server.is_superuser
        yield _Limit(
            "max_connections",
            _free_of_server(room, is_superuser=is_superuser),
            sum(each.connections for each in demands),
        )
        # Sidecars are not told apart by role or database: all of theirs are taken for ours.
        if room.role_limit is not None and not is_superuser:
            yield _Limit(
                "the role (ALTER ROLE … CONNECTION LIMIT)",
                room.role_limit - max(room.of_role - room.of_sidecars, 0),
                sum(each.connections for each in demands if each.server.role == one.server.role),
            )
        if room.database_limit is not None and not is_superuser:
            name = one.server.database
            yield _Limit(
                "the database (ALTER DATABASE … CONNECTION LIMIT)",
                room.database_limit - max(room.of_database - room.of_sidecars, 0),
                sum(each.connections for each in demands if each.server.database == name),
            )


def _free_of_server(room: Room, *, is_superuser: bool) -> int:
    """Those that sidecars have now count as free: they are taken for ours."""
    reserved = 0 if is_superuser else room.reserved
    return room.max_connections - reserved - room.used + room.of_sidecars


@dataclass(slots=True)
class DatabaseCheck:
    """Asks the server, and remembers what it said for who looks at the tables."""

    place: PostgresPlace
    server: PostgresServer | None = None  # None: not asked yet, or it did not answer

    @property
    def matter(self) -> Subject:
        """The database."""
        return Subject("database", self.place.address)

    async def findings(self) -> AsyncGenerator[Seen, None]:
        """Server, role, pooler, room and clock; or why it cannot be reached."""
        try:
            server = self.server = await self._visited()
        except BackendError as error:
            yield trouble(self.matter, error)
            return
        settings, subject = self.place.settings, self.place.address
        for finding in server_findings(
            self.matter,
            server,
            says_pgbouncer=settings.pgbouncer,
            listens=self.place.is_listened_to,
        ):
            yield finding
        yield ServerDemand(subject, server, self.place.connections)
        for finding in clock_findings(Subject("clock", subject), server.clock):
            yield finding

    async def _visited(self) -> PostgresServer:
        settings = self.place.settings
        try:
            return await visit_postgres_server(settings)
        except BackendError as error:
            # A PgBouncer refuses sessions that start with settings which it does not keep.
            if not isinstance(error.__cause__, asyncpg.ProtocolViolationError):
                raise
            server = await visit_postgres_server(replace(settings, pgbouncer=True))
            return replace(server, is_pooled=True)
