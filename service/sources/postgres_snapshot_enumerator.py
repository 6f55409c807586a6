"""Takes the snapshot of a table that is to be read, and cuts the table into ranges.

By the key, as far as an index has its order; else by where rows are stored, so that a table without
an index is read once as well. Reads no rows but a sample.
"""

from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from service.backends.postgres_catalog import PostgresCatalog
from service.backends.postgres_connections import Records
from service.backends.postgres_lookup import uses_index
from service.backends.postgres_settings import PostgresSettings
from service.backends.postgres_table import PostgresTable
from service.sources.postgres_snapshot_query import (
    bounds_query,
    key_columns,
    postgres_snapshot_query,
    size_query,
    some_bound_query,
)
from service.sources.postgres_snapshot_session import PostgresSnapshotSession
from service.sources.postgres_snapshot_split import (
    STORED_AT,
    Bound,
    PostgresSnapshotSplit,
    RangeColumn,
    TablePicture,
)

_PAGES_OF_A_SPLIT = 16
_LEAST_PERCENT = 10.0  # of the blocks: about a dozen of them for each page
_WHOLE_SAMPLE_BYTES = 8 * 2**20  # of so much a sample would be too small
_SNAPSHOT = """
SELECT pg_catalog.pg_export_snapshot() AS id, pg_catalog.pg_current_snapshot()::text AS snapshot,
       pg_catalog.pg_is_in_recovery() AS is_of_standby
"""
_MAY_SCAN = "SELECT pg_catalog.set_config('enable_seqscan', $1, true)"


class PostgresSnapshotEnumerator:
    """Keeps the snapshot, and the table as it is, as long as it is open.

    Meanwhile the server cannot vacuum what came to be dead, and ALTER TABLE waits.
    """

    discovery_interval_s = None

    def __init__(
        self, settings: PostgresSettings, schema: DimensionSchema, *, page_bytes: int
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._page_bytes = page_bytes  # of the table
        self._session = PostgresSnapshotSession(settings)
        self._splits: Sequence[PostgresSnapshotSplit] | None = None

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""
        await self._session.open(None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the snapshot: readers that have it keep it, no other one gets it."""
        await self._session.close()

    async def discover(self) -> Sequence[PostgresSnapshotSplit]:
        """The ranges; the snapshot is taken the first time.

        Raises BackendError: `schema_changed` if the table is not what was described.
        """
        if self._splits is None:
            self._splits = await self._found()
        return self._splits

    async def _found(self) -> Sequence[PostgresSnapshotSplit]:
        async def run(query: str, arguments: Sequence[Any]) -> Records:
            return await self._session.fetch(query, arguments)

        (taken,) = await self._session.fetch(_SNAPSHOT)
        table = await PostgresCatalog(run).read_table(self._settings)
        if not table.schema.is_same(self._schema):
            detail = f"{self._settings.table}: is not what it was when it was described"
            raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)
        columns, bounds, row_count = await self._pages(table)
        snapshot = TableSnapshot.parse(taken["snapshot"], is_of_standby=taken["is_of_standby"])
        return _splits(TablePicture(table, columns, taken["id"], snapshot), bounds, row_count)

    async def _pages(
        self, table: PostgresTable
    ) -> tuple[tuple[RangeColumn, ...], list[Bound], float]:
        (size,) = await self._session.fetch(size_query(table))
        columns, row_count = key_columns(table), float(size["row_count"])
        page_count = -(-size["table_bytes"] // self._page_bytes)
        if page_count <= 1:
            return columns, [], row_count
        if not await self._is_indexed(table, columns):
            block_count = size["main_bytes"] // size["block_bytes"]
            return (STORED_AT,), _stored_bounds(block_count, page_count), row_count
        share = _WHOLE_SAMPLE_BYTES / max(size["main_bytes"], 1)
        percent = min(max(100 * share, _LEAST_PERCENT), 100.0)
        query = bounds_query(table, columns, percent=percent)
        found = await self._session.fetch(query, [page_count])
        bounds = dict.fromkeys(tuple(record) for record in found)  # all rows of a key in one page
        return columns, [*bounds], row_count

    async def _is_indexed(self, table: PostgresTable, columns: Sequence[RangeColumn]) -> bool:
        for bound in await self._session.fetch(some_bound_query(table, columns)):
            query = postgres_snapshot_query(table, columns, first=tuple(bound), end=None)
            await self._session.fetch(_MAY_SCAN, ["off"])
            (plan,) = await self._session.fetch(f"EXPLAIN (FORMAT JSON) {query}", tuple(bound))
            await self._session.fetch(_MAY_SCAN, ["on"])
            return uses_index(str(plan[0]))
        return False  # without a row, any range will do


def _stored_bounds(block_count: int, page_count: int) -> list[Bound]:
    """Between so many pages of as many blocks each, if there are as many."""
    firsts = {block_count * page // page_count for page in range(1, page_count)}
    return [(f"({first},0)",) for first in sorted(firsts - {0})]


def _splits(
    picture: TablePicture, inner: Sequence[Bound], row_count: float
) -> Sequence[PostgresSnapshotSplit]:
    bounds: list[Bound | None] = [None, *inner, None]
    page_count = len(bounds) - 1
    firsts = [*range(0, page_count, _PAGES_OF_A_SPLIT), page_count]
    return [
        PostgresSnapshotSplit(
            id=f"range {number}",
            picture=picture,
            bounds=tuple(bounds[first : end + 1]),
            # Less than 0: nobody has counted yet.
            total=None if row_count < 0 else round(row_count * (end - first) / page_count),
        )
        for number, (first, end) in enumerate(pairwise(firsts), 1)
    ]
