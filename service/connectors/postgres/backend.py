"""A dimension that is a table in PostgreSQL: one query for each batch of keys.

Only the order of things: connections, catalog, types and errors have modules of their own.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.blocks import rows_of_blocks
from service.connectors.postgres.catalog import PostgresCatalog
from service.connectors.postgres.connections import PostgresConnections, Records
from service.connectors.postgres.queries import (
    blocks_query,
    blocks_query_with_snapshot,
    index_statement,
    key_arguments,
    key_order,
    lookup_query,
    query_with_snapshot,
    scanning_query,
    uses_index,
)
from service.connectors.postgres.rows import rows_of_records
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import PostgresTable

log = structlog.get_logger()

# For so many keys, and rows of so few bytes, it pays that rows come in blocks, and that keys stand
# in an index's order. The server holds all rows of such a batch at once.
_FEWEST_KEYS_IN_BLOCKS = 1_000
_MOST_ROW_BYTES_IN_BLOCKS = 1_000


@dataclass(frozen=True, slots=True)
class _Lookup:
    table: PostgresTable
    query: str
    blocks_query: str
    uses_index: bool


class PostgresBackend:
    """The rows of a table, read as they are at each query.

    An index on the key makes it cheap, and a unique one is not needed.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connections = PostgresConnections(settings)
        self._lookup: _Lookup | None = None  # since the last `describe`
        self._row_bytes = math.inf  # of the rows that came last

    @property
    def uses_index(self) -> bool | None:
        """Whether an index leads from keys to rows; None before the first `describe`."""
        return None if self._lookup is None else self._lookup.uses_index

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
        """Read types from the catalog, and the plan, each time anew: the table may have changed.

        Raises BackendError (`table_unavailable`, `forbidden`, `backend_unavailable`,
        `backend_auth`, `timeout`) within `timeout_s`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s

        async def run(query: str, arguments: Sequence[Any]) -> Records:
            left_s = deadline_s - asyncio.get_running_loop().time()
            return (await self._connections.run(query, arguments, timeout_s=left_s)).records

        table = await PostgresCatalog(run).read_table(self._settings)
        left_s = deadline_s - asyncio.get_running_loop().time()
        self._lookup = await self._planned(table, timeout_s=left_s)
        return table.schema

    async def probe(self, *, timeout_s: float) -> None:
        """A query that touches no table; raises BackendError within `timeout_s`."""
        try:
            await self._connections.run("SELECT 1", [], timeout_s=timeout_s)
        except BackendError as error:
            if error.code is ErrorCode.TIMEOUT:
                self._connections.expire()
            raise

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys.

        Raises BackendError (`schema_changed` asks for a new `describe`; also `forbidden`,
        `timeout`, `upstream_…`). Cancellation terminates the connection of the query.
        """
        assert self._lookup is not None, "describe comes first"
        fits_blocks = self._row_bytes <= _MOST_ROW_BYTES_IN_BLOCKS
        is_in_blocks = fits_blocks and keys.num_rows >= _FEWEST_KEYS_IN_BLOCKS
        fetch = self._fetch_blocks if is_in_blocks else self._fetch_records
        fetched = await fetch(self._lookup, keys, timeout_s)
        if fetched.rows.num_rows:
            self._row_bytes = fetched.rows.nbytes / fetched.rows.num_rows
        return fetched

    async def _fetch_records(
        self, lookup: _Lookup, keys: pa.RecordBatch, timeout_s: float
    ) -> FetchedRows:
        arguments = key_arguments(keys, lookup.table.schema.key)
        reply = await self._connections.run(lookup.query, arguments, timeout_s=timeout_s)
        fetched = rows_of_records(
            reply.records,
            lookup.table,
            key_count=keys.num_rows,
            tells_snapshot=self._settings.is_followed,
        )
        return replace(fetched, store=reply.store)

    async def _fetch_blocks(
        self, lookup: _Lookup, keys: pa.RecordBatch, timeout_s: float
    ) -> FetchedRows:
        order = key_order(keys)
        arguments = key_arguments(keys.take(pa.array(order)), lookup.table.schema.key)
        reply = await self._connections.run(lookup.blocks_query, arguments, timeout_s=timeout_s)
        fetched = rows_of_blocks(
            tuple(reply.records[0]),
            lookup.table,
            key_count=keys.num_rows,
            tells_snapshot=self._settings.is_followed,
        )
        return replace(fetched, ordinals=order[fetched.ordinals], store=reply.store)

    async def _planned(self, table: PostgresTable, *, timeout_s: float) -> _Lookup:
        is_ordered = self._settings.has_several_rows
        query = lookup_query(table, is_ordered=is_ordered)
        key = table.schema.key
        no_keys = key_arguments(pa.RecordBatch.from_pylist([], key), key)
        plan = await self._connections.plan(query, no_keys, timeout_s=timeout_s)
        if uses_index(plan):
            return self._asked_with(table, query, uses_index=True)
        remedy = index_statement(table)
        if self._settings.require_index:
            detail = f"{self._settings.table}: no index leads from the key to its rows; {remedy}"
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
        if self.uses_index is not False:  # told once, until it is mended
            log.warning(
                "dimension.lookup_without_index", table=self._settings.table, create_index=remedy
            )
        scanning = scanning_query(table, is_ordered=is_ordered)
        return self._asked_with(table, scanning, uses_index=False)

    def _asked_with(self, table: PostgresTable, query: str, *, uses_index: bool) -> _Lookup:
        if self._settings.is_followed:
            blocks = blocks_query_with_snapshot(table, query)
            return _Lookup(table, query_with_snapshot(table, query), blocks, uses_index)
        return _Lookup(table, query, blocks_query(table, query), uses_index)
