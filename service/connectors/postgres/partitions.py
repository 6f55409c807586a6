"""Partition watch: a changelog of a partitioned table, with the changes of its set of partitions.

A changelog has the changes of rows only. Attached and detached partitions change the rows of the
table, too, and so does TRUNCATE of a single partition.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.sources.splits import Split
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.connectors.ports.split_read import PendingRead
from service.connectors.postgres.connections import DedicatedSession, dedicated_connection
from service.connectors.postgres.settings import PostgresSettings

_INTERVAL_S = 5.0
_QUERY_TIMEOUT_S = 5.0
_LOW_HALF = 0xFFFFFFFF
_CHANGED = "partitions were attached, detached or truncated"

# The version of the set of partitions: NULL without any. TRUNCATE gives a partition another file.
# The changes that made it are of the last transaction of the snapshot, or of earlier ones.
_PARTITIONS = """
WITH RECURSIVE part AS (
    SELECT i.inhrelid, i.xmin::text AS version FROM pg_catalog.pg_inherits i
    WHERE i.inhparent = $1::oid
    UNION ALL
    SELECT i.inhrelid, i.xmin::text FROM part
    JOIN pg_catalog.pg_inherits i ON i.inhparent = part.inhrelid
)
SELECT pg_catalog.md5(pg_catalog.string_agg(
           pg_catalog.concat_ws(' ', c.oid, c.relfilenode, part.version), ',' ORDER BY c.oid
       )) AS version,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1
       AS last_transaction_id
FROM part JOIN pg_catalog.pg_class c ON c.oid = part.inhrelid
"""


class WatchedPartitions:
    """The changes of another source; of a partitioned table, those of its partitions are added.

    They are reported within seconds. While the database does not answer, nothing is reported.
    """

    is_bounded = False

    def __init__(
        self, changes: Source, settings: PostgresSettings, *, interval_s: float = _INTERVAL_S
    ) -> None:
        self.reading_mode = changes.reading_mode
        self.settings = settings
        self.interval_s = interval_s
        self._changes = changes
        self._version: str | None = None
        self._is_known = False

    def enumerator(self, schema: DimensionSchema) -> SplitEnumerator:
        """The enumerator of the other source."""
        return self._changes.enumerator(schema)

    def reader(self, schema: DimensionSchema) -> SplitReader:
        """A reader with its own connection if the table is partitioned."""
        reader, origin = self._changes.reader(schema), schema.origin
        if origin is None or not origin.is_partitioned:
            return reader
        return WatchingReader(reader, self, origin)

    def is_changed(self, version: str | None) -> bool:
        """Whether an earlier version of the partitions was another one; notes this version."""
        is_changed = self._is_known and version != self._version
        self._version, self._is_known = version, True
        return is_changed


class WatchingReader(SplitReader):
    """Reads the other source, and compares the partitions at each interval.

    The versions outlive a reader: the next one reports what changed between them.
    """

    def __init__(self, reader: SplitReader, watch: WatchedPartitions, origin: TableOrigin) -> None:
        self._reader = reader
        self._watch = watch
        self._session = PartitionSession(watch.settings, origin)
        self._pending: PendingRead[tuple[str | None, int]] = PendingRead()
        self._change: TableChange | None = None  # not reported yet
        self._due_at_s = 0.0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect to the database first, then open the other reader; raises BackendError."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._session.close)
            await self._session.open()
            self._compare(*await self._session.version())
            await stack.enter_async_context(self._reader)
            stack.push_async_callback(self._pending.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect from both."""
        await self._stack.aclose()

    async def assign(self, split: Split, *, position: int | None) -> None:
        """See SplitReader."""
        await self._reader.assign(split, position=position)

    def pause(self, split_ids: Collection[str]) -> None:
        """See SplitReader."""
        self._reader.pause(split_ids)

    async def read(self) -> Sequence[SplitPiece]:
        """The next pieces; raises BackendError, also if the partitions cannot be read."""
        if not self._pending.is_begun and asyncio.get_running_loop().time() >= self._due_at_s:
            self._pending.begin(self._session.version())
        if self._pending.is_begun:
            found = await self._pending.take()
            if found is not None:
                self._compare(*found)
        pieces = await self._reader.read()
        if self._change is None or not pieces:
            return pieces
        change, self._change = self._change, None
        first, *others = pieces
        return [replace(first, changes=(change, *first.changes)), *others]

    def _compare(self, version: str | None, last_transaction_id: int) -> None:
        self._due_at_s = asyncio.get_running_loop().time() + self._watch.interval_s
        if self._watch.is_changed(version):
            self._change = TableChange(_CHANGED, last_transaction_id & _LOW_HALF)


class PartitionSession(DedicatedSession):
    """A connection that reads the set of partitions of one table."""

    def __init__(self, settings: PostgresSettings, origin: TableOrigin) -> None:
        super().__init__(settings.table)
        self._settings = settings
        self._origin = origin

    async def open(self) -> None:
        """Connect; raises BackendError within the connect timeout."""
        settings = self._settings
        async with self.bounded(settings.connect_timeout_s):
            self._connection = await dedicated_connection(settings, "partitions")

    async def version(self) -> tuple[str | None, int]:
        """The version of the partitions, and the last transaction; raises BackendError in time."""
        assert self._connection is not None, "open comes first"
        async with self.bounded(_QUERY_TIMEOUT_S):
            record = await self._connection.fetchrow(_PARTITIONS, self._origin.table_id)
        assert record is not None  # an aggregate has a row
        return record["version"], record["last_transaction_id"]
