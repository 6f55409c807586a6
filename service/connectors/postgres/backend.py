"""PostgreSQL backend: one query for each batch of keys."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
import structlog

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.column_values import INVALID_TEXT
from service.connectors.postgres.connections import PostgresConnections, PostgresPool, Records
from service.connectors.postgres.errors import is_untranslatable
from service.connectors.postgres.queries import (
    REPLY_BYTES,
    blocks_query,
    blocks_query_with_snapshot,
    bounded_reply,
    bounded_shares,
    first_rows,
    index_remedy,
    key_arguments,
    key_order,
    keys_query,
    lookup_query,
    query_with_snapshot,
    scanning_query,
    trial_query,
)
from service.connectors.postgres.rows import rows_of_blocks, rows_of_records
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import PostgresTable, RelationKind

log = structlog.get_logger()

# Blocks and sorted keys pay off from this many keys, for rows of at most this size: the server
# keeps all rows of such a batch in memory.
_MIN_BLOCK_KEYS = 1_000
_MAX_BLOCK_ROW_BYTES = 1_000
_STEP_BYTES = 2**20  # rows whose decoding takes about a millisecond
_FEW_BYTES = REPLY_BYTES // 4  # expected rows that leave each key a share several times its row


@dataclass(frozen=True, slots=True)
class _Queries:
    """The query of a lookup, for records and for blocks."""

    records: str
    blocks: str


@dataclass(frozen=True, slots=True)
class _Lookup:
    table: PostgresTable
    queries: _Queries
    of_small_rows: _Queries  # quicker, if rows are small
    uses_index: bool | None
    trial: str | None  # that succeeded


class PostgresBackend:
    """Rows of a table, as of each query. Lookups need an index on the key, unique or not.

    Without a shared pool, which must be open, the backend opens and closes its own.
    """

    reads_on_request = True

    def __init__(self, settings: PostgresSettings, pool: PostgresPool | None = None) -> None:
        self._settings = settings
        self._connections = PostgresConnections(settings, pool)
        self._lookup: _Lookup | None = None  # set by `describe`
        self._row_bytes = math.inf  # average of the last rows

    @property
    def uses_index(self) -> bool | None:
        """Whether lookups use an index; None if unknown, and before the first `describe`."""
        return None if self._lookup is None else self._lookup.uses_index

    @property
    def _has_snapshot(self) -> bool:
        """Whether queries return their snapshot and server; a pooler may have mixed servers."""
        return self._settings.is_followed or self._settings.pgbouncer

    async def __aenter__(self) -> Self:
        """Create its own pool; the database may be down."""
        await self._connections.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close its own pool; terminate connections whose server does not answer."""
        await self._connections.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the catalog and the query plan; the table may have changed since the last call.

        Raises as `describe_table`.
        """
        table = await self.describe_table(timeout_s=timeout_s)
        return replace(table.schema, server=self._connections.server)

    async def describe_table(self, *, timeout_s: float) -> PostgresTable:
        """Read the catalog and the query plan; also for what a schema does not say.

        Raises BackendError (`table_unavailable`, `forbidden`, `backend_unavailable`,
        `backend_auth`, `timeout`) within `timeout_s`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s

        async def run(query: str, arguments: Sequence[Any]) -> Records:
            reply = await self._connections.run_until(query, arguments, deadline_s=deadline_s)
            return reply.records

        table = await read_table(run, self._settings)
        if self._lookup is not None and self._lookup.table.version != table.version:
            self._connections.expire()  # settings of the role take effect in new sessions
        left_s = deadline_s - asyncio.get_running_loop().time()
        self._lookup = await self._planned(table, timeout_s=left_s)
        return table

    async def probe(self, *, timeout_s: float) -> None:
        """Run a query without a table; raises BackendError within `timeout_s`."""
        try:
            await self._connections.run("SELECT 1", [], timeout_s=timeout_s)
        except BackendError as error:
            if error.code is ErrorCode.TIMEOUT:
                self._connections.expire()
            raise

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys.

        Raises BackendError (`schema_changed` requires a new `describe`; also `forbidden`,
        `timeout`, `backend_…`). Cancellation terminates the connection of the query.
        """
        assert self._lookup is not None, "describe comes first"
        lookup, key_count = self._lookup, keys.num_rows
        fits_blocks = self._row_bytes <= _MAX_BLOCK_ROW_BYTES
        order = key_order(keys) if fits_blocks and key_count >= _MIN_BLOCK_KEYS else None
        are_small = self._row_bytes * key_count <= _FEW_BYTES
        queries = lookup.of_small_rows if are_small else lookup.queries
        query = queries.records if order is None else queries.blocks
        sent = keys if order is None else keys.take(pa.array(order))
        arguments = key_arguments(sent, lookup.table.schema.key)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            reply = await self._connections.run(query, arguments, timeout_s=timeout_s)
        except BackendError as error:
            if key_count == 1 and is_untranslatable(error):
                await self._check_row(arguments, deadline_s)
            raise
        has_snapshot = self._has_snapshot
        if order is None:
            fetched = rows_of_records(
                reply.records, lookup.table, key_count=key_count, has_snapshot=has_snapshot
            )
        else:
            fetched = rows_of_blocks(
                tuple(reply.records[0]),
                lookup.table,
                key_count=key_count,
                has_snapshot=has_snapshot,
            )
            fetched = fetched.of_order(order)
        if fetched.rows.nbytes > _STEP_BYTES:
            await asyncio.sleep(0)  # the rows are copied again: let other tasks run before
        if fetched.deferred.size:
            self._row_bytes = math.inf  # shares would leave most of an answer empty
        elif fetched.rows.num_rows:
            self._row_bytes = fetched.rows.nbytes / fetched.rows.num_rows
        server = self._connections.confirmed(reply.server, fetched.server.identity)
        return replace(fetched, server=server)

    async def _check_row(self, arguments: Sequence[Any], deadline_s: float) -> None:
        """Raise `value_rejected` if the server reads the key, so that it refused the row.

        Raises the error of the key otherwise.
        """
        assert self._lookup is not None
        query = keys_query(self._lookup.table)
        await self._connections.run_until(query, arguments, deadline_s=deadline_s)
        raise BackendError(ErrorCode.VALUE_REJECTED, f"{self._settings.table}: {INVALID_TEXT}")

    async def _planned(self, table: PostgresTable, *, timeout_s: float) -> _Lookup:
        settings, key = self._settings, table.schema.key
        query = lookup_query(table, is_ordered=settings.has_several_rows)
        no_keys = key_arguments(pa.RecordBatch.from_pylist([], key), key)
        trial = trial_query(table)
        is_tried = self._lookup is not None and self._lookup.trial == trial
        plan = await self._connections.plan(
            query, no_keys, timeout_s=timeout_s, trial=None if is_tried else trial
        )
        is_indexed = plan.uses_index()
        if is_indexed is None:
            has_parts = table.kind is not RelationKind.PARTITIONED or table.has_foreign_parts
            if settings.require_index and has_parts:
                detail = "a foreign server does not show whether it uses an index"
                detail = f"{settings.table}: {detail}; leave require_index out"
                raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail, is_permanent=True)
            query = self._scanning(table, sends_keys=True)
        elif not is_indexed:
            remedy = index_remedy(table)
            if settings.require_index:
                detail = f"{settings.table}: no index leads from the key to its rows; {remedy}"
                raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
            if self.uses_index is not False:  # once, until there is an index
                log.warning(
                    "dimension.lookup_without_index", table=settings.table, create_index=remedy
                )
            query = self._scanning(table, sends_keys=table.has_foreign_parts)
        elif self.uses_index is False:
            log.info("dimension.lookup_with_index", table=settings.table)
        if settings.is_first:
            query = first_rows(table, query, 1)
        queries = self._queries(table, bounded_reply(table, query))
        small = queries
        if table.is_unique:
            small = self._queries(table, bounded_shares(table, query))
        return _Lookup(table, queries, small, is_indexed, trial)

    def _scanning(self, table: PostgresTable, *, sends_keys: bool) -> str:
        is_ordered = self._settings.has_several_rows
        query = scanning_query(table, is_ordered=is_ordered, sends_keys=sends_keys)
        # Two show that a key is ambiguous.
        return query if is_ordered or table.is_unique else first_rows(table, query, 2)

    def _queries(self, table: PostgresTable, query: str) -> _Queries:
        if self._has_snapshot:
            unknown = self._connections.unknown_parts
            blocks = blocks_query_with_snapshot(table, query, unknown=unknown)
            return _Queries(query_with_snapshot(table, query, unknown=unknown), blocks)
        return _Queries(query, blocks_query(table, query))
