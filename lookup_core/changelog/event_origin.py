"""Event origin: whether an event of Debezium is of the followed table, by its `source`.

A topic may hold events of other tables, databases, servers and kinds of databases.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

_CONNECTOR = "postgresql"
_MAX_NAME_CHARACTERS = 64  # in messages
_MAX_OWN_SENDERS = 8  # connectors of the followed database that are distinguished
_LATEST_MS = 253_402_300_799_000  # the end of 9999; producers choose the times of messages
_PROOF_MS = 3_600_000  # connectors may share a `topic.prefix`, against Debezium's documentation


class Belonging(Enum):
    """How an event relates to the table."""

    OURS = "ours"
    DOUBTFUL = "doubtful"  # maybe of another server: rows, positions and transactions mean nothing
    OTHER_TABLE = "other table"  # in the same database
    FOREIGN = "foreign"  # another database or server


@dataclass(slots=True)
class _Sender:
    own_ms: int  # time of its latest event of the followed database
    foreign_ms: int | None = None  # and of another one, since then

    @property
    def is_ours(self) -> bool:
        return self.foreign_ms is None or self.foreign_ms - self.own_ms <= _PROOF_MS


class EventSenders:
    """The connectors whose events a topic has had, in any partition, by their `topic.prefix`.

    A connector reads one database. Once it reports another one, it does not report the table,
    unless it has reported the followed database within an hour before.
    """

    def __init__(self) -> None:
        self.of_table = set[str]()  # with events of the table
        self._senders: dict[str | None, _Sender] = {}  # that have reported the followed database
        self._foreign_hint: str | None = None  # that of the latest foreign event
        self._first_ms = 0  # the time of the first foreign event

    @property
    def doubt(self) -> str | None:
        """Why the topic may not report the table: all of its connectors read other databases.

        A connector of ours that is quiet since the start is not known.
        """
        if self._foreign_hint is None or any(each.is_ours for each in self._senders.values()):
            return None
        own_ms = (each.own_ms for each in self._senders.values())
        since_ms = min(max(max(own_ms, default=self._first_ms), 0), _LATEST_MS)
        since = datetime.fromtimestamp(since_ms / 1000, timezone.utc)
        return f"{self._foreign_hint}; none of its own came since {since:%Y-%m-%d %H:%M} UTC"

    def note_own(self, name: object, at_ms: int) -> None:
        """Note an event of the followed database, of any table."""
        known = name if isinstance(name, str) else None
        if known not in self._senders and len(self._senders) >= _MAX_OWN_SENDERS:
            known = None  # the others count as one
        sender = self._senders.setdefault(known, _Sender(at_ms))
        sender.own_ms = max(at_ms, sender.own_ms)

    def note_table(self, name: object) -> None:
        """Note an event of the table."""
        if isinstance(name, str) and len(self.of_table) < _MAX_OWN_SENDERS:
            self.of_table.add(name)

    def note_foreign(self, name: object, at_ms: int, hint: str) -> None:
        """Note an event of another database, server or kind."""
        sender = self._senders.get(name if isinstance(name, str) else None)
        if sender is not None:
            foreign_ms = sender.foreign_ms
            sender.foreign_ms = at_ms if foreign_ms is None else max(at_ms, foreign_ms)
        if self._foreign_hint is None:
            self._first_ms = at_ms
        self._foreign_hint = hint


@dataclass(frozen=True, slots=True)
class EventOrigins:
    """Decides which events are of one table.

    A configured server excludes others. One that the names of topics suggest makes others doubtful
    only, since topics may be renamed. Without a name, all events are doubtful from the second
    server on.
    """

    table: str  # "schema.table"
    database: str | None = None  # None: any
    server: str | None = None  # the `topic.prefix` of the connector; None: unknown
    is_server_configured: bool = False

    def belonging(
        self, source: Mapping[str, Any], senders: EventSenders, *, at_ms: int
    ) -> Belonging:
        """How an event with this `source` and time of its message relates to the table.

        Notes its connector.
        """
        name = source.get("name")
        if self._is_foreign(source):
            senders.note_foreign(name, at_ms, self.hint(source))
            return Belonging.FOREIGN
        senders.note_own(name, at_ms)
        if self.table != f"{source.get('schema')}.{source.get('table')}":
            return Belonging.OTHER_TABLE
        senders.note_table(name)
        is_doubtful = self.are_mixed(senders) or _is_other(name, self.server)
        return Belonging.DOUBTFUL if is_doubtful else Belonging.OURS

    def are_mixed(self, senders: EventSenders) -> bool:
        """Whether events of the table have several servers, and that of the table is unknown."""
        return self.server is None and len(senders.of_table) > 1

    def hint(self, source: Mapping[str, Any]) -> str:
        """Why an event is doubtful or foreign, and the setting that decides, for the log."""
        kind, database, name = (source.get(each) for each in ("connector", "db", "name"))
        if _is_other(kind, _CONNECTOR):
            return (
                f"events of the connector {_quoted(kind)} are ignored: it is not PostgreSQL's; set "
                "changelog.topic to a topic of the database that is read"
            )
        if _is_other(database, self.database):
            return (
                f"events of the database {_quoted(database)} are ignored; if it has the table, set "
                "changelog.database to its name"
            )
        if self.is_server_configured:
            return (
                f"events of the server {_quoted(name)} are ignored; if it has the table, set "
                "changelog.server to its name"
            )
        return (
            f"rows of events of the server {_quoted(name)} are queried instead: the topic may have "
            "events of several servers; set changelog.server to the topic.prefix of the connector"
        )

    def _is_foreign(self, source: Mapping[str, Any]) -> bool:
        is_of_other_server = _is_other(source.get("name"), self.server)
        return (
            _is_other(source.get("connector"), _CONNECTOR)
            or _is_other(source.get("db"), self.database)
            or (self.is_server_configured and is_of_other_server)
        )


def _is_other(given: object, expected: str | None) -> bool:
    """Whether both names are known, and differ."""
    return None not in (given, expected) and given != expected


def _quoted(name: object) -> str:
    return f'"{str(name)[:_MAX_NAME_CHARACTERS]}"'
