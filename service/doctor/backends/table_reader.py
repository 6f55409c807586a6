"""Table reader: a table as the sidecar's own backend reads it, and the rights of the role.

Only reads: it grants nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres import sql_text
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.connections import PostgresConnections, PostgresPool, Records
from service.connectors.postgres.sessions import CatalogRow, PostgresSettings
from service.connectors.postgres.snapshot import read_size
from service.connectors.postgres.table import PostgresTable, Publications, read_publications

_QUERY_TIMEOUT_S = 3.0
_DENIED = re.compile(r"permission denied for ([a-z ]+?) ([^ ]+)$")  # another language: unknown
_PRIVILEGES = {  # {kind of object in the server's message: privilege and object in GRANT}
    **dict.fromkeys(("table", "view", "materialized view", "foreign table"), "SELECT ON"),
    "schema": "USAGE ON SCHEMA",
    "function": "EXECUTE ON FUNCTION",
    "foreign server": "USAGE ON FOREIGN SERVER",
}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Query plan of a lookup, size, and the role's rights on the table."""

    uses_index: bool | None  # None: unknown
    rights: Sequence[str] | None = ()  # beyond SELECT: INSERT, UPDATE, …; None: unknown
    holders: Sequence[str] = ()  # have these rights: the role, those that it is in, PUBLIC
    is_owner: bool = False
    size_bytes: int = 0  # on disk, without indexes
    has_unique_key: bool | None = None  # None: not known
    publications: Publications | None = None  # None: not checked


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads a table as the sidecar does, and what a sidecar does not need to know."""

    settings: PostgresSettings
    pool: PostgresPool

    async def run_statement(self, query: str, arguments: Sequence[Any]) -> Records:
        """Run a statement; raises BackendError."""
        connections = PostgresConnections(self.settings, self.pool)
        return (await connections.run(query, arguments, timeout_s=_QUERY_TIMEOUT_S)).records

    async def read_table(self, *, is_loaded: bool) -> tuple[PostgresTable, TableFacts]:
        """Read the table by the sidecar's own backend, and more; raises BackendError."""
        backend = PostgresBackend(replace(self.settings, require_index=False), self.pool)
        table = await backend.describe_table(timeout_s=_QUERY_TIMEOUT_S)
        rights = await self._rights(table)
        # Without an index, the rows of foreign partitions, or those of a filter, may be unique.
        may_be_unique = table.has_foreign_parts or self.settings.where is not None
        if may_be_unique and not rights.get("has_unique_key"):
            rights["has_unique_key"] = None
        # Loads read the size, too: a refusal is an error of theirs.
        size_bytes = (await read_size(self.run_statement, table))["table_bytes"] if is_loaded else 0
        publications = None
        if self.settings.needs_publication:
            publications = await read_publications(
                self.run_statement, self.settings, table.table_id
            )
        return table, TableFacts(
            backend.uses_index,
            size_bytes=size_bytes or 0,
            publications=publications,
            **rights,
        )

    async def _rights(self, table: PostgresTable) -> dict[str, Any]:
        """The rights, none on a query; unknown if the server refuses a function for them."""
        try:
            key = table.schema.key.names
            found = await self.run_statement(
                sql_text("table_rights", __package__), [table.table_id, key]
            )
        except BackendError as error:
            if error.code is not ErrorCode.FORBIDDEN:
                raise
            return {"rights": None}
        return dict(found[0]) if found else {}

    async def missing_grants(self, role: str, refusal: BackendError) -> str:
        """The statements that grant the role what the refused relation needs; "" if not known."""
        found: Sequence[CatalogRow] = ()
        settings, reader = self.settings, quoted(role)
        columns = None if settings.columns is None else [*settings.key, *settings.columns]
        if settings.query is None:
            try:
                found = await self.run_statement(
                    sql_text("missing_rights", __package__), [settings.table, columns]
                )
            except BackendError:
                return ""  # the refusal itself is reported
        for relation in found[:1]:
            if statements := list(_grants(relation, quoted(role))):
                return "; ".join(statements)
            if relation["is_view"]:  # its owner reads the tables
                reader = f"the owner of {relation['name']}; with security_invoker, to {reader}"
        denied = _DENIED.search(refusal.detail)
        privilege = None if denied is None else _PRIVILEGES.get(denied[1])
        if denied is None or privilege is None:
            return ""
        grantee = reader if privilege == "SELECT ON" else quoted(role)
        return f"GRANT {privilege} {quoted(denied[2])} TO {grantee}"


def _grants(relation: CatalogRow, role: str) -> Iterator[str]:
    if not relation["may_use_schema"]:
        yield f"GRANT USAGE ON SCHEMA {relation['schema_name']} TO {role}"
    if (hidden := relation["hidden"]) is not None:
        what = f"SELECT ({hidden})" if relation["has_readable_columns"] else "SELECT"
        yield f"GRANT {what} ON {relation['name']} TO {role}"
