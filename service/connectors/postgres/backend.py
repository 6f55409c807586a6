"""PostgreSQL backend: one query for each batch of keys, and its plan."""

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import structlog

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.backend import Backend
from service.connectors.ports.resource import Resource
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.column_values import INVALID_TEXT
from service.connectors.postgres.connections import PostgresConnections, PostgresPool
from service.connectors.postgres.errors import is_untranslatable
from service.connectors.postgres.queries import (
    COMPUTED,
    REPLY_BYTES,
    blocks_query,
    bounded_reply,
    bounded_shares,
    first_rows,
    keys_query,
    lookup_query,
    scanning_query,
    trial_query,
    with_snapshot,
)
from service.connectors.postgres.rows import (
    key_arguments,
    key_order,
    rows_of_blocks,
    rows_of_records,
)
from service.connectors.postgres.sessions import PostgresSettings, unavailable
from service.connectors.postgres.table import PostgresTable, RelationKind

log = structlog.get_logger()

# Blocks and sorted keys pay off from this many keys, for rows of at most this size: the server
# keeps all rows of such a batch in memory.
_MIN_BLOCK_KEYS = 1_000
_MAX_BLOCK_ROW_BYTES = 1_000
_STEP_BYTES = 2**20  # rows whose decoding takes about a millisecond
_FEW_BYTES = REPLY_BYTES // 4  # expected rows that leave each key a share several times its row

IndexColumns: TypeAlias = Sequence[str]  # as in the definition of the index
_KEY = "k.key"  # in conditions of a plan


def index_remedy(table: PostgresTable) -> str:
    """The statement that creates the index for lookups, or the advice where to create it."""
    key = ", ".join(quoted(name) for name, _ in table.keys)
    if table.kind in COMPUTED:
        return (
            f"create an index on the table column that {key} comes from, without a function of it; "
            "or use cache.mode: full"
        )
    # A partitioned table cannot have an index created concurrently.
    concurrently = "" if table.kind is RelationKind.PARTITIONED else "CONCURRENTLY "
    return f"CREATE INDEX {concurrently}ON {table.sql_name} ({key})"


@dataclass(frozen=True, slots=True)
class _Queries:
    """The query of a lookup, for records and for blocks."""

    records: str
    blocks: str


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The queries of a described table."""

    table: PostgresTable
    trial: str | None  # the query of a row that succeeded; None without SQL of the user
    uses_index: bool | None
    queries: _Queries
    small_row_queries: _Queries  # quicker, if rows are small


class PostgresBackend(Resource, Backend):
    """Rows of a table, as of each query. Lookups need an index on the key, unique or not.

    Without a shared pool, which must be open, the backend opens and closes its own.
    """

    def __init__(self, settings: PostgresSettings, pool: PostgresPool | None = None) -> None:
        self._settings = settings
        self._connections = PostgresConnections(settings, pool)
        # Queries return their snapshot and server; a pooler may have mixed servers.
        self._has_snapshot = settings.is_followed or settings.pgbouncer
        self._lookup: _Lookup | None = None  # set by `describe`
        self._row_bytes = math.inf  # average of the last rows

    @property
    def uses_index(self) -> bool | None:
        """Whether lookups use an index; None if unknown, and before the first `describe`."""
        return None if self._lookup is None else self._lookup.uses_index

    async def open(self, stack: AsyncExitStack) -> None:
        """Create its own pool; the database may be down."""
        await stack.enter_async_context(self._connections)

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the catalog and the query plan; the table may have changed since the last call.

        Raises as `describe_table`.
        """
        table = await self.describe_table(timeout_s=timeout_s)
        return replace(table.schema, server=self._connections.pool.server)

    async def describe_table(self, *, timeout_s: float) -> PostgresTable:
        """Read the catalog and the query plan; also for what a schema does not say.

        Raises BackendError (`table_unavailable`, `forbidden`, `backend_unavailable`,
        `backend_auth`, `timeout`) within `timeout_s`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        table = await read_table(self._connections.until(deadline_s), self._settings)
        if self._lookup is not None and self._lookup.table.origin.version != table.origin.version:
            self._connections.pool.expire()  # settings of the role take effect in new sessions
        self._lookup = await self._planned(table, deadline_s)
        return table

    async def probe(self, *, timeout_s: float) -> None:
        """Run a query without a table; raises BackendError within `timeout_s`."""
        try:
            await self._connections.run("SELECT 1", [], timeout_s=timeout_s)
        except BackendError as error:
            if error.code is ErrorCode.TIMEOUT:
                self._connections.pool.expire()
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
        queries = lookup.small_row_queries if are_small else lookup.queries
        sent = keys if order is None else keys.take(pa.array(order))
        arguments = key_arguments(sent, lookup.table.schema.key)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        query = queries.records if order is None else queries.blocks
        try:
            reply = await self._connections.run_until(query, arguments, deadline_s=deadline_s)
        except BackendError as error:
            if key_count == 1 and is_untranslatable(error):
                await self._check_row(lookup.table, arguments, deadline_s)
            raise
        if order is None:
            fetched = rows_of_records(
                reply.records, lookup.table, key_count=key_count, has_snapshot=self._has_snapshot
            )
        else:
            blocks = tuple(reply.records[0])
            fetched = rows_of_blocks(
                blocks, lookup.table, key_count=key_count, has_snapshot=self._has_snapshot
            ).of_order(order)
        await self._note_size(fetched)
        server = self._connections.confirmed(reply.server, fetched.server.identity)
        return replace(fetched, server=server)

    async def _note_size(self, fetched: FetchedRows) -> None:
        if fetched.rows.nbytes > _STEP_BYTES:
            await asyncio.sleep(0)  # the rows are copied again: let other tasks run before
        if fetched.deferred.size:
            self._row_bytes = math.inf  # shares would leave most of an answer empty
        elif fetched.rows.num_rows:
            self._row_bytes = fetched.rows.nbytes / fetched.rows.num_rows

    async def _check_row(
        self, table: PostgresTable, arguments: Sequence[Any], deadline_s: float
    ) -> None:
        """Raise `value_rejected` if the server reads the key, so that it refused the row.

        Raises the error of the key otherwise.
        """
        await self._connections.run_until(keys_query(table), arguments, deadline_s=deadline_s)
        raise BackendError(ErrorCode.VALUE_REJECTED, f"{self._settings.table}: {INVALID_TEXT}")

    async def _planned(self, table: PostgresTable, deadline_s: float) -> _Lookup:
        """Plan lookups without a key, and try the SQL of the user, unless it was tried before."""
        query, trial, key = lookup_query(table), trial_query(table), table.schema.key
        no_keys = key_arguments(pa.RecordBatch.from_pylist([], key), key)
        is_tried = self._lookup is not None and self._lookup.trial == trial
        plan, indexes = await self._connections.plan(
            query, no_keys, deadline_s=deadline_s, trial=None if is_tried else trial
        )
        is_indexed = uses_index(plan, indexes)
        self._check_index(table, is_indexed=is_indexed)
        if not is_indexed:
            query = scanning_query(table, sends_keys=is_indexed is None or table.has_foreign_parts)
            if not (table.has_several_rows or table.is_unique):
                query = first_rows(table, query, 2)  # two show that a key is ambiguous
        if self._settings.is_first:
            query = first_rows(table, query, 1)
        queries = self._queries(table, bounded_reply(table, query))
        small = self._queries(table, bounded_shares(table, query)) if table.is_unique else queries
        return _Lookup(table, trial, is_indexed, queries, small)

    def _check_index(self, table: PostgresTable, *, is_indexed: bool | None) -> None:
        """Log a missing index once, until there is one; raise BackendError if it is required."""
        settings, remedy = self._settings, index_remedy(table)
        if is_indexed is None:
            has_parts = table.kind is not RelationKind.PARTITIONED or table.has_foreign_parts
            if settings.require_index and has_parts:
                reason = "a foreign server does not show whether it uses an index"
                raise unavailable(settings, f"{reason}; leave require_index out")
        elif is_indexed:
            if self.uses_index is False:
                log.info("dimension.lookup_with_index", table=settings.table)
        elif settings.require_index:
            reason = f"no index leads from the key to its rows; {remedy}"
            raise unavailable(settings, reason, is_permanent=False)
        elif self.uses_index is not False:
            log.warning("dimension.lookup_without_index", table=settings.table, create_index=remedy)

    def _queries(self, table: PostgresTable, query: str) -> _Queries:
        blocks = blocks_query(table, query)
        if not self._has_snapshot:
            return _Queries(query, blocks)
        add = partial(with_snapshot, table, unknown=self._connections.pool.identification.unknown)
        return _Queries(add(query), add(blocks, is_block=True))


class _Search(IntEnum):
    """How a part of a plan finds the rows of a key; the largest one of several counts."""

    ELSEWHERE = 0  # not by the key
    UNKNOWN = 1
    BY_INDEX = 2
    BY_SCAN = 3


def uses_index(plan: str, index_rows: Iterable[Any]) -> bool | None:
    """Whether a plan as JSON finds rows by an index condition on the keys.

    None if a foreign server finds them, or if there is nothing to read. Each part of a table
    needs its index, and no table below a view is searched without one. A condition on some key
    columns is enough, if they are the first ones of the index: only the owner of the table
    knows which of them are selective. Other conditions read the whole index, or one part of it
    for each value of the first column (a skip scan): such an index does not count.

    `index_rows` are the indexes of the tables of the plan. An equality that the planner finds in
    one index may use each other one that is general.
    """
    rows = [*index_rows]
    general: defaultdict[int, list[IndexColumns]] = defaultdict(list)
    for table_id, _, columns, is_general in rows:
        if is_general:
            general[table_id].append(columns)
    indexes: defaultdict[str, list[IndexColumns]] = defaultdict(list)
    for table_id, name, columns, _ in rows:
        indexes[name] += [columns, *general[table_id]]
    found = _search(json.loads(plan)[0]["Plan"], indexes)
    return None if found is _Search.UNKNOWN else found is _Search.BY_INDEX


def _search(node: Mapping[str, Any], indexes: Mapping[str, Sequence[IndexColumns]]) -> _Search:
    kind, condition = node["Node Type"], node.get("Index Cond", "")
    if _KEY in condition:
        searched = indexes.get(node.get("Index Name", ""), [()])
        return _Search.BY_INDEX if _is_led(condition, searched) else _Search.BY_SCAN
    # A foreign scan, or a partitioned table without partitions.
    if kind == "Foreign Scan" or node.get("One-Time Filter") == "false":
        return _Search.UNKNOWN
    is_union = kind in {"Append", "Merge Append"}
    children = [each for each in node.get("Plans", ()) if not (is_union and _is_constant(each))]
    found = [_search(child, indexes) for child in children]
    if is_union and any(found):
        is_searched = {*found} <= {_Search.BY_INDEX, _Search.UNKNOWN}
        return min(found) if is_searched else _Search.BY_SCAN
    largest = max(found, default=_Search.ELSEWHERE)
    filters = kind.endswith("Scan") and _KEY in node.get("Filter", "")
    return _Search.BY_SCAN if filters and not largest else largest


def _is_constant(node: Mapping[str, Any]) -> bool:
    """Whether a part of a plan has rows of the SQL only, as `UNION ALL SELECT 0, 'unknown'`."""
    is_kind = node["Node Type"] in {"Result", "Values Scan", "Subquery Scan"}
    return is_kind and all(map(_is_constant, node.get("Plans", ())))


def _is_led(condition: str, indexes: Sequence[IndexColumns]) -> bool:
    """Whether the condition compares the first columns of an index, up to one with a key.

    True if it has other expressions than the definitions: a view may rename the columns of a table
    (`t AS x (a, b)`), and the planner simplifies expressions.
    """
    # Each begins with its column: `name = k.key1`, `name)::text = k.key1`, `lower(name) = 'a'`.
    comparisons = [part.lstrip("(") for part in condition.split(" AND ")]
    equalities = [
        part for part in comparisons if " = " in part or "=) " in part or " IS NULL" in part
    ]

    def found(column: str) -> list[str]:
        # A definition has an expression in parentheses.
        start = (column[1:-1] if column.startswith("(") else column).lstrip("(")
        return [part for part in equalities if part.startswith((f"{start} ", f"{start})"))]

    known = {part for columns in indexes for column in columns for part in found(column)}
    if sum(_KEY in part for part in known) < condition.count(_KEY):
        return True
    return any(_starts_with_key(map(found, columns)) for columns in indexes)


def _starts_with_key(comparisons: Iterable[Sequence[str]]) -> bool:
    for each in comparisons:
        if any(_KEY in part for part in each):
            return True
        if not each:
            return False
    return True
