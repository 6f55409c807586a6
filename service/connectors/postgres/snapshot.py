"""PostgreSQL snapshot source: a bounded load of a table as of one moment, in ranges."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.resource import Resource, cancel
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.connectors.postgres import sql_text
from service.connectors.postgres.catalog import read_table
from service.connectors.postgres.connections import Records
from service.connectors.postgres.queries import (
    CTID,
    Bound,
    RangeColumn,
    bounds_query,
    is_quickly_sized,
    key_columns,
    postgres_snapshot_query,
    stream_query,
)
from service.connectors.postgres.rows import (
    postgres_snapshot_rows,
    surplus_ranges,
)
from service.connectors.postgres.sessions import (
    READ_COMMITTED,
    CatalogRow,
    Connection,
    DedicatedSession,
    Identification,
    PostgresSettings,
    RunQuery,
    close_session,
    connected,
    fixed_settings,
)
from service.connectors.postgres.table import PostgresTable, RelationKind

_SIZE = sql_text("size")
_PAGES_PER_SPLIT = 16
_MIN_SAMPLE_PERCENT = 10.0  # about a dozen blocks for each page
_FULL_SAMPLE_BYTES = 8 * 2**20  # sample smaller tables completely
_EXPORT = """
SELECT pg_catalog.pg_export_snapshot() AS id, pg_catalog.pg_current_snapshot()::text AS snapshot
"""
_QUERY_TIMEOUT_S = 30.0  # for one page, also while another session locks the table
_STREAM_TIMEOUT_S = 600.0  # for the first page: the server reads and sorts all rows before it
_GRACE_S = 2.0  # the server's timeout comes first
# The role's timeouts for short transactions must not end a load; a lost client must.
_SETTINGS = fixed_settings(
    {
        "client_connection_check_interval": "1000",
        "max_parallel_workers_per_gather": "0",
        "statement_timeout": f"{_QUERY_TIMEOUT_S * 1000:.0f}",
        "tcp_keepalives_count": "3",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
    },
    is_local=True,
)
_ATTEMPTS = 16  # to reach the server of a snapshot: enough for three servers behind an address
_NO_SUCH_SNAPSHOT = {"22023", "42704", "55000"}  # in different versions of PostgreSQL
_SET_STREAM = f"""
SELECT pg_catalog.set_config('statement_timeout', '{_STREAM_TIMEOUT_S * 1000:.0f}', true),
       -- a sort uses the disk; an aggregate by hash would keep all pages in memory
       pg_catalog.set_config('enable_hashagg', 'off', true)
"""


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions can import, and the table as it shows it."""

    table: PostgresTable
    range_columns: tuple[RangeColumn, ...]
    id: str  # for SET TRANSACTION SNAPSHOT
    visibility: TableSnapshot
    server: ServerIdentity


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSplit(Split):
    """Pages of rows: page i is the range from bound i to bound i + 1, exclusive; None: open.

    Without range columns, it is a stream of pages. Its position counts the rows that were read. A
    page with too many bytes is divided when it is read.
    """

    snapshot: ExportedSnapshot
    bounds: list[Bound | None] = field(compare=False)
    total: int | None  # estimated rows
    # {position: next page}; positions are reported at the ends of pages only
    page_at: dict[int, int] = field(default_factory=lambda: {0: 0}, compare=False)

    @property
    def is_stream(self) -> bool:
        """Whether it is one stream, of an unknown number of pages."""
        return not self.snapshot.range_columns

    @property
    def page_count(self) -> int:
        """The number of pages of ranges."""
        return len(self.bounds) - 1


async def read_size(run: RunQuery, table: PostgresTable) -> CatalogRow:
    """The bytes and estimated rows of a table, and whether an index finds ranges of its key.

    Raises the errors of `run`.
    """
    (size,) = await run(_SIZE, [table.origin.table_id, key_columns(table)[0].name])
    return size


class PostgresSnapshot(Source):
    """All rows of a table; each reader has a connection outside the pool of lookups.

    It works behind a PgBouncer with transaction pooling: each session is one transaction. It needs
    a server connection per reader, and one more.
    """

    is_bounded = True
    reading_mode = ReadingMode.PARALLEL

    def __init__(self, settings: PostgresSettings, *, page_bytes: int = 2**20) -> None:
        self._settings = settings
        self._page_bytes = page_bytes  # on disk, or for rows of a stream, per query

    def enumerator(self, schema: DimensionSchema) -> "PostgresSnapshotEnumerator":
        """An enumerator, which keeps the snapshot until it is closed."""
        return PostgresSnapshotEnumerator(self._settings, schema, page_bytes=self._page_bytes)

    def reader(self, schema: DimensionSchema) -> "PostgresSnapshotReader":
        """A reader of the splits of an open enumerator."""
        del schema  # the enumerator compares it with the table
        return PostgresSnapshotReader(self._settings, page_bytes=self._page_bytes)


class PostgresSnapshotSession(DedicatedSession):
    """One connection with one read-only transaction on one snapshot.

    It is not from the pool: lookups are short, and must not wait for a load.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings.table)
        self._settings = settings

    async def open(self, snapshot_id: str | None) -> None:
        """Connect and begin; None: on the snapshot of the first query.

        Connects again if the address led to a server without this snapshot: several servers may
        have it in turn. Raises BackendError within the connect timeout; `backend_rejected` if no
        connection reaches the snapshot.
        """
        settings = self._settings
        isolation = {} if settings.pgbouncer else READ_COMMITTED
        async with self.bounded(settings.connect_timeout_s):
            for _ in range(_ATTEMPTS):
                connecting = connected(
                    settings,
                    timeout=settings.connect_timeout_s,
                    server_settings={"application_name": "sidelook load", **isolation},
                    statement_cache_size=settings.statement_cache_size,
                )
                connection = await self.connect(connecting)
                if await _has_begun(connection, snapshot_id):
                    return
                await close_session(connection)
            reason = "no server has the snapshot; the session that exported it may have ended"
            raise self.failure(ErrorCode.BACKEND_REJECTED, reason)

    async def fetch(
        self, query: str, arguments: Sequence[Any] = (), *, timeout_s: float = _QUERY_TIMEOUT_S
    ) -> Records:
        """Run a query; raises BackendError in time.

        After an error or a cancellation, which does not wait, the session is unusable.
        """
        async with self.bounded(timeout_s + _GRACE_S):
            records: Records = await self.connection.fetch(query, *arguments)
        return records

    async def identify(self) -> ServerIdentity:
        """The server of the transaction, also behind a pooler; raises BackendError in time."""
        connection = self.connection

        async def fetch(statement: str) -> Records:
            await connection.execute("SAVEPOINT identity")  # the server may refuse the statement
            try:
                records: Records = await connection.fetch(statement)
            except asyncpg.PostgresError:
                await connection.execute("ROLLBACK TO SAVEPOINT identity")
                raise
            return records

        async with self.bounded(_QUERY_TIMEOUT_S + _GRACE_S):
            return await Identification().read(fetch)

    async def begin_stream(self, table: PostgresTable, *, page_bytes: int) -> None:
        """Declare the cursor of all rows; raises BackendError in time."""
        query = stream_query(table, page_bytes=page_bytes)
        await self.fetch(_SET_STREAM)
        await self.fetch(f"DECLARE pages NO SCROLL CURSOR FOR {query}")

    async def next_page(self) -> Records:
        """The blocks of the stream's next page, empty at its end; raises BackendError in time."""
        return await self.fetch("FETCH NEXT FROM pages", timeout_s=_STREAM_TIMEOUT_S)


async def _has_begun(connection: Connection, snapshot_id: str | None) -> bool:
    """Begin the transaction; false if the server does not have the snapshot."""
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if snapshot_id is not None:
        try:
            quoted_id = snapshot_id.replace("'", "''")
            await connection.execute(f"SET TRANSACTION SNAPSHOT '{quoted_id}'")
        except asyncpg.PostgresError as error:
            if error.sqlstate not in _NO_SUCH_SNAPSHOT:
                raise
            return False
    await connection.execute(_SETTINGS)
    return True


class PostgresSnapshotEnumerator(Resource, SplitEnumerator):
    """Exports a snapshot; while it is open, VACUUM keeps dead rows, and ALTER TABLE waits."""

    def __init__(
        self, settings: PostgresSettings, schema: DimensionSchema, *, page_bytes: int
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._page_bytes = page_bytes
        self._session = PostgresSnapshotSession(settings)
        self._splits: Sequence[PostgresSnapshotSplit] | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect; raises BackendError.

        The end releases the snapshot: open readers keep it, new readers cannot import it.
        """
        stack.push_async_callback(self._session.close)
        await self._session.open(None)

    async def discover(self) -> Sequence[PostgresSnapshotSplit]:
        """The ranges as of the first call; raises BackendError, also `schema_changed`."""
        if self._splits is None:
            (exported,) = await self._session.fetch(_EXPORT)
            server = await self._session.identify()
            table = await read_table(self._session.fetch, self._settings)
            if not table.schema.is_same(self._schema):
                reason = "changed since its schema was read"
                raise self._session.failure(ErrorCode.SCHEMA_CHANGED, reason)
            columns, bounds, row_count = await self._ranges(table)
            visibility = TableSnapshot.parse(
                exported["snapshot"], is_of_standby=server.is_standby is not False
            )
            snapshot = ExportedSnapshot(table, columns, exported["id"], visibility, server)
            self._splits = _splits(snapshot, bounds, row_count)
        return self._splits

    async def _ranges(
        self, table: PostgresTable
    ) -> tuple[tuple[RangeColumn, ...], list[Bound], float]:
        if not table.has_row_places:
            return (), [], -1.0
        # Until the end of the transaction, ALTER TABLE and REFRESH wait.
        await self._session.fetch(f"SELECT FROM {table.from_item()} LIMIT 0")
        size = await read_size(self._session.fetch, table)
        columns, row_count = key_columns(table), float(size["row_count"] or 0.0)
        page_count = -(-size["table_bytes"] // self._page_bytes)
        if page_count <= 1:
            return columns, [], row_count
        if not size["has_index"]:
            if table.kind is RelationKind.PARTITIONED:
                return (), [], row_count  # places repeat: each partition has its own
            block_count = size["main_bytes"] // size["block_bytes"]
            return (CTID,), _block_bounds(block_count, page_count), row_count
        share = _FULL_SAMPLE_BYTES / max(size["main_bytes"], 1)
        percent = min(max(100 * share, _MIN_SAMPLE_PERCENT), 100.0)
        query = bounds_query(table, columns, percent=percent)
        found = await self._session.fetch(query, [page_count])
        # Distinct bounds: all rows of a key are in one page.
        return columns, [*dict.fromkeys(tuple(record) for record in found)], row_count


def _block_bounds(block_count: int, page_count: int) -> list[Bound]:
    """The bounds between pages of equally many blocks; fewer pages if there are fewer blocks."""
    firsts = {block_count * page // page_count for page in range(1, page_count)}
    return [(f"({first},0)",) for first in sorted(firsts - {0})]


def _splits(
    snapshot: ExportedSnapshot, inner: Sequence[Bound], row_count: float
) -> Sequence[PostgresSnapshotSplit]:
    bounds: list[Bound | None] = [None, *inner, None]
    page_count = len(bounds) - 1
    firsts = [*range(0, page_count, _PAGES_PER_SPLIT), page_count]
    return [
        PostgresSnapshotSplit(
            id=f"range {number}",
            snapshot=snapshot,
            bounds=bounds[first : end + 1],
            # Negative before the first ANALYZE.
            total=None if row_count < 0 else round(row_count * (end - first) / page_count),
        )
        for number, (first, end) in enumerate(pairwise(firsts), 1)
    ]


class PostgresSnapshotReader(Resource, SplitReader):
    """Reads one split to its end before the next; requests a page ahead.

    The first split brings the snapshot: opening needs no connection.
    """

    def __init__(self, settings: PostgresSettings, *, page_bytes: int = 2**20) -> None:
        self._session = PostgresSnapshotSession(settings)
        self._page_bytes = page_bytes  # for a stream
        self._split: PostgresSnapshotSplit | None = None
        self._position = self._page = 0
        self._pending: asyncio.Task[Records] | None = None  # the next page, unless it is the end

    async def open(self, stack: AsyncExitStack) -> None:
        """Leave the connection to `assign`."""
        stack.push_async_callback(self._session.close)
        stack.push_async_callback(lambda: cancel(self._pending))

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this split next; raises BackendError, also if its snapshot has ended."""
        assert isinstance(split, PostgresSnapshotSplit)
        if split.is_stream and position:
            # Another session may have another order, and other rows of a foreign server.
            reason = "its connection was lost, and a stream of rows starts again with the next load"
            raise self._session.failure(ErrorCode.BACKEND_REJECTED, reason)
        if self._split is None:
            await self._session.open(split.snapshot.id)
        if split.is_stream:
            table = split.snapshot.table
            await self._session.begin_stream(table, page_bytes=self._page_bytes)
        self._split, self._position = split, position or 0
        self._page = split.page_at[self._position]
        self._pending = self._requested(split)

    async def read(self) -> Sequence[SplitPiece]:
        """The next page; raises BackendError."""
        split = self._split
        assert split is not None, "assign comes first"
        changes: list[RowChanges] = []
        if self._pending is not None:
            pages = await self._pending
            self._page += 1
            self._pending = self._requested(split) if pages else None  # none: a stream has ended
            table = split.snapshot.table
            changes += (postgres_snapshot_rows(tuple(page), table) for page in pages)
        self._position += sum(each.keys.num_rows for each in changes)
        split.page_at[self._position] = self._page
        return [
            SplitPiece(
                split.id,
                self._position,
                [each for each in changes if each.keys.num_rows],
                is_finished=self._pending is None,
                total=split.total,
                snapshot=split.snapshot.visibility,
                server=split.snapshot.server,
            )
        ]

    def _requested(self, split: PostgresSnapshotSplit) -> asyncio.Task[Records] | None:
        """The next page, which is on its way; None at the end of the ranges."""
        if split.is_stream:
            return asyncio.create_task(self._session.next_page())
        if self._page == split.page_count:
            return None
        return asyncio.create_task(self._range_page(split, self._page))

    async def _range_page(self, split: PostgresSnapshotSplit, page: int) -> Records:
        """Read a page of ranges; if its rows exceed an answer, divide it and read its first part.

        The rows of one key are not divided: those beyond the answer are reported without values.
        """
        table, columns = split.snapshot.table, split.snapshot.range_columns
        is_small = is_quickly_sized(table)
        while True:
            first, end = split.bounds[page], split.bounds[page + 1]
            arguments = [*(first or ()), *(end or ())]
            query = postgres_snapshot_query(table, columns, first=first, end=end, is_small=is_small)
            records = await self._session.fetch(query, arguments)
            if is_small and records[0][0] is None:  # too large, or empty
                is_small = False
                continue
            if not (ranges := surplus_ranges(tuple(records[0]))):
                return records
            query = bounds_query(table, columns, first=first, end=end)
            found = await self._session.fetch(query, [ranges, *arguments])
            inner = dict.fromkeys(tuple(each) for each in found if tuple(each) != first)
            if not inner:
                return records
            split.bounds[page + 1 : page + 1] = inner
