"""Table check: columns, index, role's permissions, size, trial notification; Parquet schema."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lookup_core.dimension.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import CacheMode, Match
from service.config.cache import Cache
from service.config.dimension import DimensionConfig
from service.config.quantity import size_text
from service.config.source import ParquetSource
from service.connectors.parquet.file import parquet_schema
from service.connectors.postgres import sql_text
from service.connectors.postgres.backend import PostgresBackend, index_remedy
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.connections import PostgresConnections, PostgresPool, Records
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.sessions import CatalogRow, PostgresSettings
from service.connectors.postgres.snapshot import read_size
from service.connectors.postgres.table import PostgresTable, Publications, read_publications
from service.connectors.several_rows import list_columns
from service.doctor.backends.postgres_server import Database, PostgresServer
from service.doctor.finding import Finding, Subject, error_finding
from service.wiring.connector_settings import (
    notifications_settings,
    postgres_settings,
)

_QUERY_TIMEOUT_S = 3.0
_DENIED = re.compile(r"permission denied for ([a-z ]+?) ([^ ]+)$")  # another language: unknown
_PRIVILEGES = {  # {kind of object in the server's message: privilege and object in GRANT}
    **dict.fromkeys(("table", "view", "materialized view", "foreign table"), "SELECT ON"),
    "schema": "USAGE ON SCHEMA",
    "function": "EXECUTE ON FUNCTION",
    "foreign server": "USAGE ON FOREIGN SERVER",
}
_MEBIBYTE = 2**20
_HEARTBEAT_TIMEOUT_S = 2.0
_RIGHTS_FUNCTIONS = "has_table_privilege(oid, text), pg_has_role(oid, text), aclexplode(aclitem[])"


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
                self.run_statement, self.settings, table.origin.table_id
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
                sql_text("table_rights", __package__), [table.origin.table_id, key]
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


def check_parquet(subject: Subject, config: DimensionConfig) -> Iterator[Finding]:
    """Yield whether the Parquet file of a dimension has the key and the columns; reads no rows."""
    assert isinstance(config.source, ParquetSource)  # ensured by the plan
    path = config.source.path
    try:
        parquet_schema(path, config.key, columns=config.columns)
    except BackendError as error:
        yield error_finding(subject, error)
    else:
        yield subject.ok(f"{path} has the key and the columns")


@dataclass(frozen=True, slots=True)
class TableCheck:
    """Settings of the table checks of a database; `slots` bounds their concurrent sessions."""

    database: Database
    slots: asyncio.Semaphore
    config_file: Path | None = None
    cache_scale: float = 1.0  # factor for max_bytes of the caches

    async def inspect(self, subject: Subject) -> AsyncGenerator[Finding, None]:
        """Yield the faults that affect lookups and notifications; the subject is a dimension."""
        server = self.database.server
        if server is None:
            reason = "was not checked, because its database does not answer"
            yield subject.skipped(reason, "see the finding of its database")
            return
        config = self.database.dimensions[subject.name]
        settings = postgres_settings(config)
        # One connection: the doctor must work on an almost full server.
        is_pooled = settings.pgbouncer or server.is_pooled
        settings = replace(settings, max_connections=1, pgbouncer=is_pooled)
        async with self.slots, PostgresPool(settings) as pool:
            reader = TableReader(settings, pool)
            try:
                async for finding in self._table_findings(subject, reader, server):
                    yield finding
            except BackendError as error:
                remedy = ""
                if error.code is ErrorCode.FORBIDDEN:
                    remedy = await reader.missing_grants(server.role, error)
                yield error_finding(subject, error, remedy=remedy)

    async def _table_findings(
        self, subject: Subject, reader: TableReader, server: PostgresServer
    ) -> AsyncGenerator[Finding, None]:
        name = subject.name
        config = self.database.dimensions[name]
        table, facts = await reader.read_table(is_loaded=config.cache.mode is CacheMode.FULL)
        yield subject.ok(f"{table.sql_name} can be looked up by {table.schema.key_text}")
        is_required = reader.settings.require_index
        yield index_finding(Subject("index", name), table, facts, is_required=is_required)
        if facts.has_unique_key is not None and not reader.settings.has_several_rows:
            yield key_finding(Subject("key", name), table, facts)
        if facts.publications is not None:
            yield publication_finding(Subject("publication", name), facts.publications)
        yield rights_finding(Subject("privileges", name), table, facts, server=server)
        for finding in size_findings(subject, facts, config.cache, scale=self.cache_scale):
            yield finding
        if config.default is not None:
            columns = table.schema.columns
            default_row(
                config.default, list_columns(columns) if config.match is Match.ALL else columns
            )
        if config.refresh.listen is not None:
            listen = notifications_settings(name, config, file=self.config_file)
            yield await try_notifications(Subject("listen", name), listen, table)


def index_finding(
    subject: Subject, table: PostgresTable, facts: TableFacts, *, is_required: bool
) -> Finding:
    """Return whether lookups use an index."""
    if facts.uses_index:
        return subject.ok("lookups by key use an index")
    if facts.uses_index is None:
        text = "the plan shows no index: a foreign server finds the rows, or there is no partition"
        remedy = "create an index there, and leave require_index out"
        return subject.error(text, remedy) if is_required else subject.skipped(text, remedy)
    text, remedy = "no index leads from the key to its rows", index_remedy(table)
    if is_required:
        return subject.error(text, f"{remedy}; or leave require_index out")
    return subject.warning(f"{text}: each query reads the whole table", remedy)


def key_finding(subject: Subject, table: PostgresTable, facts: TableFacts) -> Finding:
    """Return whether an index ensures that a key has one row."""
    if facts.has_unique_key:
        return subject.ok("a key has at most one row")
    unique = index_remedy(table).replace("INDEX", "UNIQUE INDEX", 1)
    return subject.warning(
        "no unique index ensures one row for each key: a key with several rows is an error "
        f"({ErrorCode.AMBIGUOUS})",
        f"{unique}; or, if keys have several rows, set match or versions",
    )


def publication_finding(subject: Subject, found: Publications) -> Finding:
    """Return whether each publication that the connector may use reports all changes."""
    remedy = "set refresh.changelog.publication to the connector's publication.name"
    if found.faults:
        text = f"publication {found.complete[0]} reports all changes, but {found.faults[0]}"
        return subject.warning(text, f"{remedy}, or correct the other one")
    if not found.complete:
        text = "the database has no publication, so it does not show whether all changes are sent"
        return subject.warning(text, "let the connector read this server with plugin.name=pgoutput")
    return subject.ok(f"publication {', '.join(found.complete)} reports all changes")


def rights_finding(
    subject: Subject, table: PostgresTable, facts: TableFacts, *, server: PostgresServer
) -> Finding:
    """Return whether the role has needless rights; the database check reports superusers."""
    role, name = server.role, table.sql_name
    if facts.rights is None:
        return subject.skipped(
            "the server refuses to show the rights of the role",
            f"grant EXECUTE on {_RIGHTS_FUNCTIONS} to role {role}",
        )
    rights = ", ".join(facts.rights)
    if server.is_superuser or table.query is not None:
        return subject.ok("the columns are readable")
    if facts.is_owner:
        return subject.warning(
            f"role {role} owns the table, so it may change and drop it",
            "use a role of its own: CREATE ROLE sidelook LOGIN; "
            f"GRANT SELECT ON {name} TO sidelook",
        )
    if rights:
        return subject.warning(
            f"role {role} may {rights}; a sidecar needs SELECT only",
            f"REVOKE {rights} ON {name} FROM {', '.join(facts.holders) or quoted(role)}",
        )
    return subject.ok(f"role {role} may read the columns, and change nothing")


def size_findings(
    subject: Subject, facts: TableFacts, cache: Cache, *, scale: float
) -> Iterator[Finding]:
    """Yield a warning if a full cache, scaled to the memory, is smaller than its table."""
    cache_bytes = int(cache.max_bytes * scale) // _MEBIBYTE * _MEBIBYTE
    if cache.mode is CacheMode.FULL and facts.size_bytes > cache.max_bytes * scale:
        table_bytes = -(-facts.size_bytes // _MEBIBYTE) * _MEBIBYTE
        yield subject.warning(
            f"the table has {size_text(table_bytes)} on disk, and its cache gets "
            f"{size_text(cache_bytes)}: the whole table may not fit",
            "raise cache.max_bytes and limits.memory, name fewer columns, or use mode partial",
        )


async def try_notifications(
    subject: Subject, settings: PostgresNotificationsSettings, table: PostgresTable
) -> Finding:
    """Listen, check the triggers, and wait for a heartbeat sent by this session."""
    try:
        async with (
            PostgresNotifications(settings).reader(table.schema) as reader,
            asyncio.timeout(_HEARTBEAT_TIMEOUT_S),
        ):
            (piece,) = await reader.read()
            while not piece.is_caught_up:
                (piece,) = await reader.read()
    except BackendError as error:
        return error_finding(subject, error)
    except TimeoutError:
        return subject.error(
            "a notification to its own session did not arrive in time",
            "name the server itself in the DSN; check for a proxy that delays messages",
        )
    if piece.doubt is not None:
        return subject.warning(*piece.doubt.split("; ", 1))
    return subject.ok(f"triggers publish changes on channel {settings.channel}, which arrive")
