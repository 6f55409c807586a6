"""A dimension that is a table in PostgreSQL: one query for each batch of keys.

Only the order of things: connections, catalog, types and errors have modules of their own.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import FetchedRows
from service.backends.postgres_catalog import PostgresCatalog
from service.backends.postgres_connections import PostgresConnections, Records
from service.backends.postgres_rows import fetched_rows, key_arguments
from service.backends.postgres_settings import PostgresSettings


@dataclass(frozen=True, slots=True)
class _Lookup:
    schema: DimensionSchema
    query: str


class PostgresBackend:
    """The rows of a table with a unique index on the key, read as they are at each query."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connections = PostgresConnections(settings)
        self._lookup: _Lookup | None = None  # since the last `describe`

    async def __aenter__(self) -> Self:
        """Make the pool; the database may be down."""
        await self._connections.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections; what hangs is terminated."""
        await self._connections.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the table's types from the catalog, each time anew: the table may have changed.

        Raises BackendError (`table_unavailable`, `forbidden`, `upstream_unavailable`,
        `upstream_auth`, `timeout`) within `timeout_s`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s

        async def run(query: str, arguments: Sequence[Any]) -> Records:
            left_s = deadline_s - asyncio.get_running_loop().time()
            return (await self._connections.run(query, arguments, timeout_s=left_s)).records

        table = await PostgresCatalog(run).read_table(self._settings)
        self._lookup = _Lookup(table.schema, table.lookup_query)
        return table.schema

    async def probe(self, *, timeout_s: float) -> None:
        """A query that touches no table; raises BackendError within `timeout_s`."""
        try:
            await self._connections.run("SELECT 1", [], timeout_s=timeout_s)
        except BackendError as error:
            if error.code is ErrorCode.TIMEOUT:
                await self._connections.expire()
            raise

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys.

        Raises BackendError (`schema_changed` asks for a new `describe`; also `forbidden`,
        `timeout`, `upstream_…`). Cancellation terminates the connection of the query.
        """
        assert self._lookup is not None, "describe comes first"
        lookup = self._lookup
        reply = await self._connections.run(
            lookup.query, key_arguments(keys, lookup.schema.key), timeout_s=timeout_s
        )
        fetched = fetched_rows(reply.records, lookup.schema.columns, key_count=keys.num_rows)
        return replace(fetched, store=reply.store)
