"""Server identity: which database server answered a read, and whether it replaced another one.

Each part is optional: a server may be unable to name it, and an unknown part differs from none.
"""

import math
from dataclasses import dataclass

from lookup_core.freshness.table_snapshot import IdRelation


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server says of itself; None for an unknown part.

    The timeline of a primary is exact, that of a standby may lag. Two primaries may have the same
    system and timeline, if one is a copy of the other's files: they differ in their start.
    """

    system: str | None = None  # equal for a primary, its standbys and its physical copies
    database_id: int | None = None  # differs for another database of the same name
    is_standby: bool | None = None
    timeline: int | None = None
    started_at: int | None = None  # microseconds since the epoch

    def __str__(self) -> str:
        role = {True: "standby", False: "primary", None: "server"}[self.is_standby]
        parts = (self.system, self.timeline, self.database_id, self.started_at)
        return " ".join([role, *("?" if part is None else str(part) for part in parts)])

    def is_other_than(self, reads: "ServerIdentity") -> bool:
        """Whether rows of this server belong to another history than those of reads.

        A standby may be of an earlier timeline, because its own lags.
        """
        if _differ(self.system, reads.system) or _differ(self.database_id, reads.database_id):
            return True
        if self.is_standby is False and reads.is_standby is False:
            are_equal_starts = not _differ(self.started_at, reads.started_at)
            return not are_equal_starts or _differ(self.timeline, reads.timeline)
        if self.is_standby is False and reads.is_standby:
            return (self.timeline or math.inf) < (reads.timeline or 0)
        return False

    def ids_in(self, reads: "ServerIdentity") -> IdRelation:
        """Whether the transaction ids of this server may be compared with those of reads."""
        if _differ(self.system, reads.system):
            return IdRelation.FOREIGN
        if self.started_at is not None and self.started_at == reads.started_at:
            return IdRelation.COMPARABLE
        are_primaries = self.is_standby is False and reads.is_standby is False
        if are_primaries and _differ(self.started_at, reads.started_at):
            return IdRelation.FOREIGN
        if (reads.timeline or 0) > (self.timeline or math.inf):  # reads follow a later primary
            return IdRelation.FOREIGN
        is_known = self.system is not None and reads.system is not None
        return IdRelation.COMPARABLE if is_known else IdRelation.UNKNOWN


_UNKNOWN = ServerIdentity()


@dataclass(frozen=True, slots=True)
class ServerEpoch:
    """The server of a reply; `number` grows whenever another server replaces the former one."""

    number: int = 0
    identity: ServerIdentity = _UNKNOWN


UNKNOWN_SERVER = ServerEpoch()


@dataclass(slots=True)
class _Known:
    """What the servers of one epoch have in common, as far as it is known."""

    system: str | None = None
    database_id: int | None = None
    primary: ServerIdentity | None = None
    timeline: int = 0  # the latest one
    has_standbys: bool = False

    def is_left_by(self, found: ServerIdentity) -> bool:
        """Whether this server does not belong to the epoch."""
        if _differ(self.system, found.system) or _differ(self.database_id, found.database_id):
            return True
        if found.is_standby is False:
            return self._has_other_primary(found)
        return bool(found.is_standby and self.timeline) and (found.timeline or 0) > self.timeline

    def add(self, found: ServerIdentity) -> None:
        """Note the parts of one more answer."""
        self.system = self.system or found.system
        self.database_id = self.database_id or found.database_id
        self.timeline = max(self.timeline, found.timeline or 0)
        self.has_standbys |= bool(found.is_standby)
        if found.is_standby is False:
            self.primary = _merged(self.primary or found, found)

    def _has_other_primary(self, found: ServerIdentity) -> bool:
        if self.primary is None:  # perhaps a promoted standby
            return self.has_standbys
        return _differ(self.primary.timeline, found.timeline) or _differ(
            self.primary.started_at, found.started_at
        )


class ServerEpochs:
    """The epochs of the servers behind one address; standbys of one system share an epoch.

    Standbys have a prefix of the same history, and reads may alternate between them and their
    primary. Another system, database, primary, or start of a primary begins the next epoch, also if
    a former server is back. So does a later timeline of a standby, and a promotion.
    """

    def __init__(self) -> None:
        self.number = 0
        self._known = _Known()

    def note(self, found: ServerIdentity, before: ServerIdentity | None = None) -> ServerEpoch:
        """The epoch of a server that has answered; `before`: earlier in the same session."""
        is_promoted = before is not None and bool(before.is_standby) and found.is_standby is False
        if is_promoted or self._known.is_left_by(found):
            self.number += 1
            self._known = _Known()
        self._known.add(found)
        return ServerEpoch(self.number, found)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _merged(former: ServerIdentity, found: ServerIdentity) -> ServerIdentity:
    return ServerIdentity(
        timeline=found.timeline or former.timeline,
        started_at=found.started_at or former.started_at,
        is_standby=False,
    )
