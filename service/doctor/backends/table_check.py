"""Table check: rights, index, size, and a trial notification."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_core.dimension.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import CacheMode
from service.adapter_settings import notifications_settings, postgres_settings, trigger_script
from service.config.cache import Cache
from service.config.dimension import DimensionConfig
from service.config.quantity import size_text
from service.config.source import PostgresSource
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.connections import PostgresConnections, Records
from service.connectors.postgres.notifications_session import (
    PostgresNotificationsSession,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.queries import (
    index_statement,
    key_arguments,
    lookup_query,
    uses_index,
)
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import PostgresTable, quoted
from service.doctor.backends.database_check import DatabaseCheck
from service.doctor.backends.postgres_server import PostgresServer
from service.doctor.finding import Finding, Subject, trouble

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The plan of a lookup, and what the role may do besides reading."""

    uses_index: bool
    rights: tuple[str, ...] = ()  # beyond SELECT: INSERT, UPDATE, …
    is_owner: bool = False
    size_bytes: int = 0  # on disk, without indexes


def table_findings(
    matter: Subject, table: PostgresTable, facts: TableFacts, *, require_index: bool
) -> Iterator[Finding]:
    """Types, index and rights."""
    key = ", ".join(f"{field.name} {field.type}" for field in table.schema.key)
    name = f"{quoted(table.schema_name)}.{quoted(table.name)}"
    yield matter.ok(f"{name} can be looked up by {key}")
    index = Subject("index", matter.subject)
    text = "no index leads from the key to its rows: each query reads the whole table"
    remedy = index_statement(table)
    if facts.uses_index:
        yield index.ok("an index leads from the key to its rows")
    elif require_index:
        yield index.error(f"{text}, which require_index refuses", remedy)
    else:
        yield index.warning(text, remedy)


def rights_findings(
    matter: Subject, table: PostgresTable, facts: TableFacts, *, role: str, is_superuser: bool
) -> Iterator[Finding]:
    """Whether the role may do more than it needs; of superusers the database check tells."""
    name = f"{quoted(table.schema_name)}.{quoted(table.name)}"
    if is_superuser:
        yield matter.ok("columns can be read")
    elif facts.is_owner:
        yield matter.warning(
            f"role {role} owns the table, and may change and drop it",
            "use a role of its own: CREATE ROLE sidelook LOGIN; "
            f"GRANT SELECT ON {name} TO sidelook",
        )
    elif facts.rights:
        rights = ", ".join(facts.rights)
        yield matter.warning(
            f"role {role} may {rights}; a sidecar needs SELECT only",
            f"REVOKE {rights} ON {name} FROM {quoted(role)}",
        )
    else:
        yield matter.ok(f"role {role} may read the columns, and change nothing")


def size_findings(
    matter: Subject, facts: TableFacts, cache: Cache, *, scale: float
) -> Iterator[Finding]:
    """Whether a table that is to be held whole fits into its cache, scaled as it will be."""
    room_bytes = int(cache.max_bytes * scale) // _MEBIBYTE * _MEBIBYTE
    if cache.mode is CacheMode.FULL and facts.size_bytes > cache.max_bytes * scale:
        size = size_text(-(-facts.size_bytes // _MEBIBYTE) * _MEBIBYTE)
        yield matter.warning(
            f"it has {size} on disk, and its cache {size_text(room_bytes)}: it may not fit whole",
            "raise cache.max_bytes and limits.memory, name fewer columns, or use mode partial",
        )


_HEARTBEAT_TIMEOUT_S = 2.0


async def try_notifications(
    matter: Subject, settings: PostgresNotificationsSettings, table: PostgresTable
) -> Finding:
    """Listen, look for the triggers, and wait for a heartbeat of one's own."""
    heard = asyncio.Event()
    session = PostgresNotificationsSession(
        settings,
        table.schema,
        hear=lambda told: heard.set() if isinstance(told, int) else None,
        on_end=lambda: None,
    )
    try:
        async with session, asyncio.timeout(_HEARTBEAT_TIMEOUT_S):
            await session.beat()
            await heard.wait()
    except BackendError as error:
        return trouble(matter, error)
    except TimeoutError:
        return matter.error(
            "a notification to itself did not come back in time",
            "name the server itself in the DSN; see that nothing between holds its answers back",
        )
    return matter.ok(f"triggers tell changes on channel {settings.channel}, which is heard")


_QUERY_TIMEOUT_S = 3.0
_RIGHTS = """
SELECT ARRAY(SELECT p FROM pg_catalog.unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p
             WHERE pg_catalog.has_table_privilege(c.oid, p)) AS rights,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_owner,
       pg_catalog.pg_table_size(c.oid) AS size_bytes
FROM pg_catalog.pg_class c WHERE c.oid = $1::oid
"""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The table of one dimension; `turns` keeps the doctor from filling the server up."""

    dimension: str
    config: DimensionConfig
    database: DatabaseCheck
    turns: asyncio.Semaphore
    file: Path | None = None  # of the configuration
    cache_scale: float = 1.0  # how much of its max_bytes the cache gets
    check: str = field(default="table")

    @property
    def matter(self) -> Subject:
        """The dimension's table."""
        return Subject(self.check, self.dimension)

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """All that keeps the table from being looked up, or followed, well."""
        server = self.database.server
        if server is None:
            yield self.matter.skipped(
                "its database does not answer", "see the finding of its database"
            )
            return
        async with self.turns:
            try:
                async for finding in self._looked_at(server):
                    yield finding
            except BackendError as error:
                yield trouble(self.matter, error, remedy=_remedy(error, self.config, server))

    async def _looked_at(self, server: PostgresServer) -> AsyncGenerator[Finding, None]:
        source = self.config.source
        assert isinstance(source, PostgresSource)  # or there would be no such check
        settings = _trial_settings(postgres_settings(self.config, source), server)
        connections = PostgresConnections(settings)
        await connections.open()
        try:
            table, facts = await _read(connections, settings)
        finally:
            await connections.close()
        for finding in table_findings(
            self.matter, table, facts, require_index=source.require_index
        ):
            yield finding
        for finding in rights_findings(
            Subject("privileges", self.dimension),
            table,
            facts,
            role=server.role,
            is_superuser=server.is_superuser,
        ):
            yield finding
        for finding in size_findings(self.matter, facts, self.config.cache, scale=self.cache_scale):
            yield finding
        if self.config.default is not None:
            default_row(self.config.default, table.schema.columns)
        if self.config.refresh.listen is not None:
            yield await self._told(source, table)

    async def _told(self, source: PostgresSource, table: PostgresTable) -> Finding:
        listen = self.config.refresh.listen
        assert listen is not None
        script = trigger_script(self.dimension, self.file)
        settings = notifications_settings(self.dimension, source, listen, script=script)
        return await try_notifications(Subject("listen", self.dimension), settings, table)


def _trial_settings(settings: PostgresSettings, server: PostgresServer) -> PostgresSettings:
    # One connection: the doctor takes no more from a full server than it must.
    return replace(settings, max_connections=1, pgbouncer=settings.pgbouncer or server.is_pooled)


async def _read(
    connections: PostgresConnections, settings: PostgresSettings
) -> tuple[PostgresTable, TableFacts]:
    async def run(query: str, arguments: Sequence[Any]) -> Records:
        return (await connections.run(query, arguments, timeout_s=_QUERY_TIMEOUT_S)).records

    table = await read_table(run, settings)
    key = table.schema.key
    no_keys = key_arguments(pa.RecordBatch.from_pylist([], key), key)
    query = lookup_query(table, is_ordered=settings.has_several_rows)
    plan = await connections.plan(query, no_keys, timeout_s=_QUERY_TIMEOUT_S)
    (rights,) = await run(_RIGHTS, [table.table_id])
    facts = TableFacts(
        uses_index(plan),
        rights=tuple(rights["rights"]),
        is_owner=rights["is_owner"],
        size_bytes=rights["size_bytes"],
    )
    return table, facts


def _remedy(error: BackendError, config: DimensionConfig, server: PostgresServer) -> str:
    if error.code is not ErrorCode.FORBIDDEN or not isinstance(config.source, PostgresSource):
        return ""
    table, role = config.source.table, quoted(server.role)
    schema = table.rpartition(".")[0] or "public"
    return f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {table} TO {role}"
