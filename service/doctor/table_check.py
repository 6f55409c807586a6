"""One dimension's table in PostgreSQL, asked as the sidecar asks it.

Catalog, plan and notifications are read by the sidecar's own adapters; what the answers mean is
decided in `table_findings`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_core.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode
from service.adapter_settings import notifications_settings, postgres_settings, trigger_script
from service.backends.postgres_catalog import PostgresCatalog
from service.backends.postgres_connections import PostgresConnections, Records
from service.backends.postgres_keys import key_arguments
from service.backends.postgres_lookup import lookup_query, uses_index
from service.backends.postgres_settings import PostgresSettings
from service.backends.postgres_table import PostgresTable, quoted
from service.config.dimension import DimensionConfig
from service.config.source import PostgresSource
from service.doctor.database_check import DatabaseCheck
from service.doctor.finding import Finding, Matter
from service.doctor.notifications_trial import try_notifications
from service.doctor.postgres_server import PostgresServer
from service.doctor.store_trouble import trouble
from service.doctor.table_findings import (
    TableFacts,
    rights_findings,
    size_findings,
    table_findings,
)

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
    def matter(self) -> Matter:
        """The dimension's table."""
        return Matter(self.check, self.dimension)

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
            Matter("privileges", self.dimension),
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
        return await try_notifications(Matter("listen", self.dimension), settings, table)


def _trial_settings(settings: PostgresSettings, server: PostgresServer) -> PostgresSettings:
    # One connection: the doctor takes no more from a full server than it must.
    return replace(settings, max_connections=1, pgbouncer=settings.pgbouncer or server.is_pooled)


async def _read(
    connections: PostgresConnections, settings: PostgresSettings
) -> tuple[PostgresTable, TableFacts]:
    async def run(query: str, arguments: Sequence[Any]) -> Records:
        return (await connections.run(query, arguments, timeout_s=_QUERY_TIMEOUT_S)).records

    table = await PostgresCatalog(run).read_table(settings)
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
