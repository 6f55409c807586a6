"""Fake backend in memory, for tests and benchmarks: records its calls, and fails on request.

To serve data from files, see `parquet`.
"""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Self

import pyarrow as pa

from lookup_core.dimension.dimension_events import FetchedRows, UnfitRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerEpoch, ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from service.connectors.parquet.row_index import RowIndex

FAKE_SERVER = ServerIdentity(system="fake")  # also that of a fake feed


class FakeBackend:
    """Finds all rows of a key in a table that has the schema's key and columns in their types."""

    uses_index: bool | None = True
    reads_on_request = True

    def __init__(self, rows: pa.Table, schema: DimensionSchema) -> None:
        self.batches: list[pa.RecordBatch] = []  # the keys of each fetch
        self.cancelled_total = 0  # held fetches that were cancelled
        self.describe_error: BackendError | None = None  # raised by `describe` while set
        self.probe_error: BackendError | None = None  # raised by `probe` while set
        self.probes_total = 0
        self.server = ServerEpoch(0, FAKE_SERVER)  # reported with its rows and description
        self.snapshot: TableSnapshot | None = None  # reported with its rows
        self.next_unfit: UnfitRows | None = None  # reported with the rows of the next fetch
        self.descriptions_total = 0  # failed ones included
        self._put(rows, schema)
        self._described = schema
        self._failures: deque[BackendError] = deque()
        self._is_open = asyncio.Event()  # fetches are not held
        self._is_open.set()
        self._called = asyncio.Condition()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The schema of its rows; raises `describe_error`."""
        del timeout_s
        self.descriptions_total += 1
        await self._note_call()
        if self.describe_error is not None:
            raise self.describe_error
        self._described = self._schema
        return replace(self._schema, server=self.server)

    async def probe(self, *, timeout_s: float) -> None:
        """Succeed at once; raises `probe_error`."""
        del timeout_s
        self.probes_total += 1
        await self._note_call()
        if self.probe_error is not None:
            raise self.probe_error

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, once it is not held; raises the errors of `fail_next`."""
        self.batches.append(keys)
        failure = self._failures.popleft() if self._failures else None
        await self._note_call()
        await self._wait_if_held(timeout_s)
        if failure is not None:
            raise failure
        if self._described is not self._schema:
            raise BackendError(ErrorCode.SCHEMA_CHANGED, "the rows of the fake were replaced")
        matches = self._index.find(keys)
        found = self._rows.take(pa.array(matches.positions, pa.int64())).combine_chunks()
        columns = [column.combine_chunks() for column in found.columns]
        rows = pa.record_batch(columns, schema=self._schema.columns)
        unfit, self.next_unfit = self.next_unfit, None
        unfits = () if unfit is None else (unfit,)
        return FetchedRows(matches.ordinals, rows, self.server, self.snapshot, unfit=unfits)

    def replace(self, rows: pa.Table, schema: DimensionSchema) -> None:
        """Replace the rows; fetches fail until the next `describe`."""
        self._put(rows, schema)

    def fail_next(self, count: int, error: BackendError) -> None:
        """Let the next `count` fetches raise this error."""
        self._failures.extend([error] * count)

    def hold(self) -> None:
        """Hold fetches until `release`."""
        self._is_open.clear()

    def release(self) -> None:
        """Continue held fetches, and hold no more."""
        self._is_open.set()

    async def wait_for_fetches(self, count: int) -> None:
        """Wait until this many fetches were called since the start; they may be held."""
        async with self._called:
            await self._called.wait_for(lambda: len(self.batches) >= count)

    async def wait_for_descriptions(self, count: int) -> None:
        """Wait for this many calls of `describe` since the start."""
        async with self._called:
            await self._called.wait_for(lambda: self.descriptions_total >= count)

    async def wait_for_probes(self, count: int) -> None:
        """Wait for this many probes since the start."""
        async with self._called:
            await self._called.wait_for(lambda: self.probes_total >= count)

    def _put(self, rows: pa.Table, schema: DimensionSchema) -> None:
        self._schema = schema
        self._rows = rows.select(schema.columns.names)
        self._index = RowIndex([rows.column(name) for name in schema.key.names])

    async def _note_call(self) -> None:
        async with self._called:
            self._called.notify_all()

    async def _wait_if_held(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_open.wait()
        except TimeoutError as error:
            detail = f"the fake was held for {timeout_s} s"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except asyncio.CancelledError:
            self.cancelled_total += 1
            raise
