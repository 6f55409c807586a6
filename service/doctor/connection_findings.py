"""Whether so many executors find room at a PostgreSQL server, whatever addresses lead there.

Pure; what else a server's facts mean is decided in `database_findings`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from service.doctor.finding import Finding, Matter
from service.doctor.interface import Seen
from service.doctor.postgres_server import Room
from service.doctor.server_demand import ServerDemand

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
            yield Matter("connections", demand.address).skipped(
                "the PgBouncer shares its connections out, whatever the executors open",
                "compare its default_pool_size and max_client_conn with "
                f"{demand.connections} connections for each executor",
            )
    own = [each for each in demands if not each.server.is_pooled]
    own.sort(key=lambda each: each.server.identity)
    for _, group in groupby(own, key=lambda each: each.server.identity):
        yield _server_finding(list(group), executors)


def _server_finding(demands: Sequence[ServerDemand], executors: int | None) -> Finding:
    matter = Matter("connections", ", ".join(each.address for each in demands))
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
