"""Event origin: whether an event of Debezium is of the followed table, by its `source`.

A topic may hold events of other tables, databases, servers and kinds of databases.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

_CONNECTOR = "postgresql"
_MAX_NAME_CHARACTERS = 64  # in messages
_MAX_SERVERS = 8  # that are counted


class Belonging(Enum):
    """How an event relates to the table."""

    OURS = "ours"
    DOUBTFUL = "doubtful"  # maybe of another server: rows, positions and transactions mean nothing
    OTHER_TABLE = "other table"  # of the same database
    FOREIGN = "foreign"  # of another database or server


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

    def belonging(self, source: Mapping[str, Any], servers: set[str]) -> Belonging:
        """How an event with this `source` relates to the table.

        Adds its server to those that had events of the table.
        """
        if self._is_foreign(source):
            return Belonging.FOREIGN
        if self.table != f"{source.get('schema')}.{source.get('table')}":
            return Belonging.OTHER_TABLE
        name = source.get("name")
        if isinstance(name, str) and len(servers) < _MAX_SERVERS:
            servers.add(name)
        is_doubtful = self.are_mixed(servers) or _is_other(name, self.server)
        return Belonging.DOUBTFUL if is_doubtful else Belonging.OURS

    def are_mixed(self, servers: set[str]) -> bool:
        """Whether events of the table have several servers, and that of the table is unknown."""
        return self.server is None and len(servers) > 1

    def hint(self, source: Mapping[str, Any]) -> str:
        """Why an event is doubtful or foreign, and the setting that decides, for the log."""
        kind, database, name = (source.get(each) for each in ("connector", "db", "name"))
        if _is_other(kind, _CONNECTOR):
            return f"events of the connector {_quoted(kind)} are ignored: it is not PostgreSQL's"
        if _is_other(database, self.database):
            return (
                f"events of the database {_quoted(database)} are ignored; if it has the table, set "
                "changelog.database to its name"
            )
        if self.is_server_configured:
            return f"events of the server {_quoted(name)} are ignored, by changelog.server"
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
