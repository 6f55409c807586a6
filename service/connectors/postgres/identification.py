"""Identification of PostgreSQL servers: each part of the identity is optional.

Managed services, revoked rights and other servers with PostgreSQL's protocol lack some of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from lookup_core.freshness.server_identity import ServerIdentity


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
