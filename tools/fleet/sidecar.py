"""Simulated sidecar: the engine's real `Dimension` over a modelled connection pool.

The pool follows asyncpg's: opened on demand, last used first, closed when idle.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Self

import numpy as np
import pyarrow as pa

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitPiece, SplitReader
from tools.fleet.database import Connection, Database

_READS_PER_SPLIT = 4
SCHEMA = DimensionSchema(
    key=pa.schema([pa.field("id", pa.int64(), nullable=False)]),
    columns=pa.schema([("value", pa.int64())]),
)


class ModelledPool:
    """Connections of one sidecar to the modelled database."""

    def __init__(self, database: Database, *, idle_s: float) -> None:
        self._database = database
        self._idle_s = idle_s
        self._idle: list[tuple[Connection, asyncio.TimerHandle]] = []  # the last used at the end

    @asynccontextmanager
    async def connection(self, timeout_s: float) -> AsyncIterator[Connection]:
        """A connection until the block ends, which closes it after an error.

        Raises BackendError; `timeout` after this time.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._acquire()
                yield connection
        except BaseException as error:
            if connection is not None:
                self._database.close(connection)
            if isinstance(error, BackendError) and error.code is ErrorCode.CONNECTION_LOST:
                self.close()  # the others are probably lost, too
            if isinstance(error, TimeoutError):
                raise BackendError(ErrorCode.TIMEOUT, "the query timed out") from error
            raise
        timer = asyncio.get_running_loop().call_later(self._idle_s, self._close_idle, connection)
        self._idle.append((connection, timer))

    def close(self) -> None:
        """Close all idle connections."""
        for connection, timer in self._idle:
            timer.cancel()
            self._database.close(connection)
        self._idle = []

    async def _acquire(self) -> Connection:
        if not self._idle:
            return await self._database.connect()
        connection, timer = self._idle.pop()
        timer.cancel()
        return connection

    def _close_idle(self, connection: Connection) -> None:
        self._idle = [each for each in self._idle if each[0] is not connection]
        self._database.close(connection)


class ModelledBackend:
    """Backend port: each key is its own row; time and failures are those of the database."""

    uses_index: bool | None = True
    reads_on_request = True

    def __init__(self, database: Database, pool: ModelledPool) -> None:
        self._database = database
        self._pool = pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._pool.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The fixed schema, after a query without keys."""
        await self.probe(timeout_s=timeout_s)
        return SCHEMA

    async def probe(self, *, timeout_s: float) -> None:
        """One query without keys."""
        async with self._pool.connection(timeout_s) as connection:
            await self._database.query(connection, 0)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, after a query for them."""
        count = keys.num_rows
        async with self._pool.connection(timeout_s) as connection:
            server = await self._database.query(connection, count)
        rows = pa.RecordBatch.from_arrays([keys.column(0)], schema=SCHEMA.columns)
        return FetchedRows(np.arange(count, dtype=np.int32), rows, server)


class ModelledTable:
    """Source port of a load: its time and connections are real, its pieces have no rows."""

    is_bounded = True
    reading_mode = ReadingMode.PARALLEL

    def __init__(self, database: Database, *, rows: int, splits: int) -> None:
        self._database = database
        self._split_ids = [str(number) for number in range(splits)]
        self._rows = rows // splits // _READS_PER_SPLIT

    def enumerator(self, schema: DimensionSchema) -> "_LoadSession":
        """A session that holds the snapshot."""
        del schema
        return _LoadSession(self._database, self._split_ids, self._rows)

    def reader(self, schema: DimensionSchema) -> "_LoadSession":
        """A session that reads splits."""
        return self.enumerator(schema)


class _LoadSession(SplitReader):
    """One connection of a load, as enumerator or as reader of one split at a time."""

    discovery_interval_s: float | None = None

    def __init__(self, database: Database, split_ids: list[str], rows: int) -> None:
        self._database = database
        self._split_ids = split_ids
        self._rows = rows
        self._connection = Connection(epoch=-1)  # as one that is lost
        self._split_id = ""
        self._position = 0

    async def __aenter__(self) -> Self:
        self._connection = await self._database.connect()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._database.close(self._connection)

    async def discover(self) -> list[Split]:
        return [Split(split_id) for split_id in self._split_ids]

    async def assign(self, split: Split, *, position: int | None) -> None:
        self._split_id, self._position = split.id, position or 0

    async def read(self) -> list[SplitPiece]:
        await self._database.scan(self._connection, self._rows)
        self._position += 1
        is_finished = self._position == _READS_PER_SPLIT
        return [
            SplitPiece(
                self._split_id, self._position, is_finished=is_finished, total=_READS_PER_SPLIT
            )
        ]

    def pause(self, split_ids: Collection[str]) -> None:
        del split_ids  # a bounded source is never paused
