"""Snapshot source: all rows of a table as of one moment, read in ranges."""

import asyncio
from collections.abc import Collection, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitPiece
from service.connectors.ports.split_read import WAIT_S, PendingRead
from service.connectors.postgres.catalog import PostgresCatalog
from service.connectors.postgres.connections import Records
from service.connectors.postgres.queries import uses_index
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.snapshot_queries import (
    CTID,
    Bound,
    PostgresSnapshotSplit,
    RangeColumn,
    TablePicture,
    bounds_query,
    key_columns,
    postgres_snapshot_query,
    postgres_snapshot_rows,
    size_query,
    some_bound_query,
)
from service.connectors.postgres.snapshot_session import PostgresSnapshotSession
from service.connectors.postgres.table import PostgresTable

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
            return (CTID,), _stored_bounds(block_count, page_count), row_count
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


class PostgresSnapshotReader:
    """One split at a time, which is read to its end before the next is assigned."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._session = PostgresSnapshotSession(settings)
        self._split: PostgresSnapshotSplit | None = None
        self._position = self._page = 0
        self._is_paused = False
        self._coming: PendingRead[Records] = PendingRead()  # the page that is asked for

    async def __aenter__(self) -> Self:
        """Nothing to prepare: which snapshot is meant is said with the first split."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the page under way, and of the connection."""
        await self._coming.cancel()
        await self._session.close()

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this split next; raises BackendError, also when the snapshot is gone."""
        assert isinstance(split, PostgresSnapshotSplit)
        if not self._session.is_open:
            await self._session.open(split.picture.snapshot_id)
        self._split, self._position = split, position or 0
        self._page = split.page_at[self._position]

    async def read(self) -> Sequence[SplitPiece]:
        """The next page, or a sign of life while it is under way; raises BackendError.

        Cancellation leaves the page to the next call.
        """
        if self._split is None or self._is_paused:
            await asyncio.sleep(WAIT_S)
            return []
        self._ask(self._split)
        if not self._coming.is_begun:
            return [self._piece(self._split)]
        records = await self._coming.take()
        if records is None:
            return [SplitPiece(self._split.id, self._position, total=self._split.total)]
        return [self._taken(self._split, tuple(records[0]))]

    def pause(self, split_ids: Collection[str]) -> None:
        """Read nothing of the split if it is named, until it is not."""
        self._is_paused = self._split is not None and self._split.id in split_ids

    def _ask(self, split: PostgresSnapshotSplit) -> None:
        if self._coming.is_begun or self._page == split.page_count:
            return
        first, end = split.bounds[self._page], split.bounds[self._page + 1]
        picture = split.picture
        query = postgres_snapshot_query(picture.table, picture.range_columns, first=first, end=end)
        arguments = [*(first or ()), *(end or ())]
        self._coming.begin(self._session.fetch(query, arguments))

    def _taken(self, split: PostgresSnapshotSplit, blocks: Sequence[bytes | None]) -> SplitPiece:
        self._page += 1
        self._ask(split)
        changes = postgres_snapshot_rows(blocks, split.picture.table)
        self._position += changes.keys.num_rows
        split.page_at[self._position] = self._page
        return self._piece(split, changes)

    def _piece(self, split: PostgresSnapshotSplit, changes: RowChanges | None = None) -> SplitPiece:
        has_rows = changes is not None and changes.keys.num_rows > 0
        is_finished = self._page == split.page_count
        return SplitPiece(
            split_id=split.id,
            position=self._position,
            changes=[changes] if changes is not None and has_rows else [],
            nbytes=changes.keys.nbytes + changes.rows.nbytes if changes is not None else 0,
            is_caught_up=is_finished,
            is_finished=is_finished,
            total=split.total,
            snapshot=split.picture.snapshot,
        )


class PostgresSnapshot:
    """Each reader has a connection of its own, beside those of lookups.

    Behind a PgBouncer that pools transactions it works, too: all is done within transactions. It
    needs as many server connections there as there are readers, and one more.
    """

    is_bounded = True
    reading_mode = ReadingMode.PARALLEL

    def __init__(self, settings: PostgresSettings, *, page_bytes: int = 2**20) -> None:
        self._settings = settings
        self._page_bytes = page_bytes  # of the table: what comes, and is taken, at once

    def enumerator(self, schema: DimensionSchema) -> PostgresSnapshotEnumerator:
        """Takes the snapshot when it is opened, and keeps it until it is closed."""
        return PostgresSnapshotEnumerator(self._settings, schema, page_bytes=self._page_bytes)

    def reader(self, schema: DimensionSchema) -> PostgresSnapshotReader:
        """Reads splits of an enumerator that is open, one after the other."""
        del schema  # splits bring what was compared with it
        return PostgresSnapshotReader(self._settings)
