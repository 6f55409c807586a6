"""A store in memory that keeps a diary and fails on request.

It ships, so that tests and benchmarks use the same fake; not for serving data: see `parquet`.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from service.connectors.ports.backend import FetchedRows
from service.connectors.ports.row_index import RowIndex


class FakeBackend:
    """The rows of a table, found by key; rows with equal keys are all found.

    The table holds the key's fields and the columns of the schema, in their exact types.
    """

    def __init__(self, rows: pa.Table, schema: DimensionSchema) -> None:
        self.batches: list[pa.RecordBatch] = []  # the keys of each fetch, in the order of the calls
        self.cancelled_total = 0  # fetches that were cancelled while they were held
        self.describe_error: BackendError | None = None  # raised by `describe` while it is set
        self.probe_error: BackendError | None = None  # raised by `probe` while it is set
        self.probes_total = 0
        self.store = ""  # which store the rows are said to come from
        self.snapshot: TableSnapshot | None = None  # what its reads are said to see
        self.descriptions_total = 0  # those that failed included
        self._put(rows, schema)
        self._described = schema
        self._failures: deque[BackendError] = deque()
        self._is_open = asyncio.Event()  # fetches pass
        self._is_open.set()
        self._arrival = asyncio.Condition()

    @property
    def uses_index(self) -> bool:
        """Always: rows in memory have one."""
        return True

    async def __aenter__(self) -> Self:
        """Nothing to prepare."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing to free."""

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The schema of its rows, unless it was told not to describe itself."""
        del timeout_s  # there is nothing to wait for
        self.descriptions_total += 1
        await self._tell_arrival()
        if self.describe_error is not None:
            raise self.describe_error
        self._described = self._schema
        return self._schema

    async def probe(self, *, timeout_s: float) -> None:
        """A sign of life, unless it was told to give none."""
        del timeout_s  # there is nothing to wait for
        self.probes_total += 1
        await self._tell_arrival()
        if self.probe_error is not None:
            raise self.probe_error

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, after the gate; failures go to the calls in their order."""
        self.batches.append(keys)
        failure = self._failures.popleft() if self._failures else None
        await self._tell_arrival()
        await self._pass_gate(timeout_s)
        if failure is not None:
            raise failure
        if self._described is not self._schema:
            raise BackendError(ErrorCode.SCHEMA_CHANGED, "the fake has other rows now")
        matches = self._index.find(keys)
        found = self._rows.take(pa.array(matches.positions, pa.int64())).combine_chunks()
        columns = [column.combine_chunks() for column in found.columns]
        rows = pa.record_batch(columns, schema=self._schema.columns)
        return FetchedRows(matches.ordinals, rows, self.store, self.snapshot)

    def replace(self, rows: pa.Table, schema: DimensionSchema) -> None:
        """Have other rows from now on; fetches fail until it has described itself anew."""
        self._put(rows, schema)

    def fail_next(self, count: int, error: BackendError) -> None:
        """Let the next `count` fetches that are called raise this error."""
        self._failures.extend([error] * count)

    def hold(self) -> None:
        """Let fetches wait from now on, until `release`."""
        self._is_open.clear()

    def release(self) -> None:
        """Let all fetches that wait go on, and later ones pass."""
        self._is_open.set()

    async def wait_for_fetches(self, count: int) -> None:
        """Wait until this many fetches were called, since the start; they may be held."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.batches) >= count)

    async def wait_for_descriptions(self, count: int) -> None:
        """Wait until it was asked this often to describe itself, since the start."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: self.descriptions_total >= count)

    async def wait_for_probes(self, count: int) -> None:
        """Wait until it was asked for so many signs of life, since the start."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: self.probes_total >= count)

    def _put(self, rows: pa.Table, schema: DimensionSchema) -> None:
        self._schema = schema
        self._rows = rows.select(schema.columns.names)
        self._index = RowIndex([rows.column(name) for name in schema.key.names])

    async def _tell_arrival(self) -> None:
        async with self._arrival:
            self._arrival.notify_all()

    async def _pass_gate(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_open.wait()
        except TimeoutError as error:
            detail = f"the fake was held for {timeout_s} s"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error
        except asyncio.CancelledError:
            self.cancelled_total += 1
            raise
