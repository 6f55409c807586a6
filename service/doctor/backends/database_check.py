"""Database check: server settings, pooler, and connections for all executors."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.sessions import PARTS, IdentityPart
from service.doctor.backends.postgres_server import ConnectionDemand, Database, PostgresServer
from service.doctor.check_runner import CheckResult
from service.doctor.clock_skew import clock_finding
from service.doctor.finding import Finding, Subject, error_finding, without_repeats

OLDEST_VERSION = 130000
_FREE_CONNECTIONS_SHARE = 0.8  # more is a warning
_SESSIONS_REMEDY = "grant SELECT on pg_stat_activity, and EXECUTE on pg_stat_get_activity(integer),"
_REFUSED_REMEDY = "grant the role of the DSN the right that the message names"


async def check_database(subject: Subject, database: Database) -> AsyncGenerator[CheckResult, None]:
    """Yield server, role, pooler, connections and clock; or why there is no connection."""
    address, listens = database.address, database.listens
    try:
        server = await database.read_server()
    except BackendError as error:
        reason = error.detail.removeprefix(f"{database.settings.table}: ")
        # The statement reads no table of a dimension.
        remedy = _REFUSED_REMEDY if error.code is ErrorCode.FORBIDDEN else ""
        yield error_finding(subject, BackendError(error.code, reason), remedy=remedy)
        return
    for finding in server_findings(
        subject, server, is_pooler_configured=database.settings.pgbouncer, listens=listens
    ):
        yield finding
    if server.used is not None or server.is_pooled:
        yield ConnectionDemand(address, server, database.connections)
    else:
        yield Subject("connections", address).skipped(
            "the server refuses to show its sessions", f"{_SESSIONS_REMEDY} to role {server.role}"
        )
    yield clock_finding(Subject("clock", address), server.clock)


def server_findings(
    subject: Subject, server: PostgresServer, *, is_pooler_configured: bool, listens: bool
) -> Iterator[Finding]:
    """Yield the findings on version, role, standby and pooler."""
    if server.version < OLDEST_VERSION:
        yield subject.error(
            f"is PostgreSQL {server.version_text}", "update the server to version 13 or newer"
        )
    else:
        yield subject.ok(f"is PostgreSQL {server.version_text}, connected as {server.role}")
    if server.is_superuser or server.bypasses_policies:
        right = "is a superuser" if server.is_superuser else "has BYPASSRLS"
        yield subject.warning(
            f"role {server.role} {right}; a sidecar needs SELECT only",
            "CREATE ROLE sidelook LOGIN; GRANT SELECT on the tables to it, and use it in the DSN",
        )
    if server.is_standby and listens:
        yield subject.error(
            "is a standby, which has no notifications",
            "add the primary to the DSN (host1,host2), or use refresh.changelog",
        )
    elif server.is_standby:
        yield subject.ok("is a standby: reads lag behind the primary")
    yield from _identity_findings(subject, server)
    yield from _pooler_findings(
        Subject("pgbouncer", subject.name),
        server,
        is_configured=is_pooler_configured,
        listens=listens,
    )


def _identity_findings(subject: Subject, server: PostgresServer) -> Iterator[Finding]:
    of_others = {"timeline"} if server.is_standby else {"replayed_timeline"}
    if "is_standby" in server.unknown_parts:  # both depend on it
        of_others = {"timeline", "replayed_timeline"}
    unknown = [PARTS[part] for part in server.unknown_parts if part not in of_others]
    if unknown:
        refused = ", ".join(
            name for part in unknown for name in _refused_functions(part, server.revoked_functions)
        )
        yield subject.warning(
            f"refuses {refused}: {'; '.join(part.loss for part in unknown)}",
            f"grant EXECUTE on {refused} to role {server.role}, if the service allows it; "
            "else keep cache.ttl short",
        )


def _refused_functions(part: IdentityPart, revoked: Sequence[str]) -> Sequence[str]:
    """The revoked functions of the part; all of them if the server refuses it in another way."""
    return [name for name in part.functions if name in revoked] or part.functions


def _pooler_findings(
    subject: Subject, server: PostgresServer, *, is_configured: bool, listens: bool
) -> Iterator[Finding]:
    if server.is_pooled and not is_configured:
        yield subject.error(
            "the address leads to a PgBouncer, and source.pgbouncer is false",
            "set source.pgbouncer: true, or name the server itself",
        )
    elif is_configured and not server.is_pooled:
        yield subject.warning(
            "source.pgbouncer is true, and the address leads to the server itself: sessions have "
            "no statement timeout, and are not read-only",
            "leave source.pgbouncer out, or name the PgBouncer",
        )
    else:
        yield subject.ok(
            "there is one, as configured" if server.is_pooled else "there is none, as configured"
        )
    if server.is_pooled and listens:
        yield subject.error(
            "refresh.listen uses a PgBouncer, which loses notifications",
            "name the server itself in the DSN of dimensions with refresh.listen",
        )
    if (server.is_pooled or is_configured) and not server.has_statement_timeout:
        yield subject.warning(
            f"role {server.role} has no statement_timeout, and the sidecar cannot set one through "
            "a PgBouncer: abandoned queries continue",
            f"ALTER ROLE {quoted(server.role)} SET statement_timeout = '10s'",
        )


def combined_findings(results: Sequence[CheckResult], executors: int | None) -> list[Finding]:
    """Return each fault once, followed by one finding per server on all connection demands."""
    findings = [each for each in results if isinstance(each, Finding)]
    demands = [each for each in results if isinstance(each, ConnectionDemand)]
    return [*without_repeats(findings), *connection_findings(demands, executors)]


def connection_findings(
    demands: Sequence[ConnectionDemand], executors: int | None
) -> Iterator[Finding]:
    """Yield for each server whether it has connections for all executors; None: unknown number."""
    for demand in demands:
        if demand.server.is_pooled:
            yield Subject("connections", demand.address).skipped(
                "the PgBouncer limits its server connections, whatever the executors open",
                "compare its default_pool_size and max_client_conn with "
                f"{demand.connections} connections for each executor",
            )
    direct = [each for each in demands if not each.server.is_pooled]
    direct.sort(key=lambda each: each.server.identity)
    for _, group in groupby(direct, key=lambda each: each.server.identity):
        yield _connection_finding(list(group), executors)


@dataclass(frozen=True, slots=True)
class _Limit:
    """A connection limit: how many are free for sidecars, and how many one executor opens."""

    name: str
    free: int
    per_executor: int

    @property
    def executors(self) -> int:
        """Largest number of executors within the limit."""
        return max(self.free, 0) // max(self.per_executor, 1)


def _connection_finding(demands: Sequence[ConnectionDemand], executors: int | None) -> Finding:
    subject = Subject("connections", ", ".join(each.address for each in demands))
    limit = min(_limits(demands), key=lambda each: (each.executors, each.free))
    remedy = (
        "lower limits.database_connections, put a PgBouncer before the server, or raise the limit "
        f"of {limit.name}"
    )
    if executors is None:
        text = (
            f"enough for {_executors(limit.executors)}: {max(limit.free, 0)} connections are free "
            f"for sidecars, and each executor opens {limit.per_executor}"
        )
        return subject.ok(text) if limit.executors else subject.error(text, remedy)
    wanted = executors * limit.per_executor
    verb = "opens" if executors == 1 else "open"
    text = (
        f"{_executors(executors)} {verb} {wanted} ({limit.per_executor} connections for each "
        f"executor), and {limit.free} are free"
    )
    if wanted > limit.free:
        return subject.error(f"{text}, enough for {_executors(limit.executors)}", remedy)
    if wanted > _FREE_CONNECTIONS_SHARE * limit.free:
        return subject.warning(f"{text}: few are left for other clients", remedy)
    return subject.ok(text)


def _executors(count: int) -> str:
    return f"{count} executor{'' if count == 1 else 's'}"


def _limits(demands: Sequence[ConnectionDemand]) -> Iterator[_Limit]:
    """Yield the server's own limit, and those of the roles and databases of the demands.

    Connections that sidecars have open count as free, since they belong to these executors.
    """
    for one in demands:
        server = one.server
        reserved = 0 if server.is_superuser else server.reserved
        used = (server.used or 0) - server.used_by_sidecars
        per_executor = sum(each.connections for each in demands)
        yield _Limit("max_connections", server.max_connections - reserved - used, per_executor)
        if server.is_superuser:
            continue  # no other limit applies
        # The role and database of other sidecars are unknown: all sidecars are subtracted.
        for kind, limit, used in (
            ("role", server.role_limit, server.used_by_role),
            ("database", server.database_limit, server.used_by_database),
        ):
            if limit is not None:
                name = getattr(server, kind)
                own = [each for each in demands if getattr(each.server, kind) == name]
                yield _Limit(
                    f"the {kind} (ALTER {kind.upper()} … CONNECTION LIMIT)",
                    limit - max(used - server.used_by_sidecars, 0),
                    sum(each.connections for each in own),
                )
