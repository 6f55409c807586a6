"""The contracts of the backend and source ports, over all implementations without a server."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.changelog.change_decoder import RowChanges, TableChange
from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.parquet.backend import ParquetBackend, ParquetScan
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.connectors.ports.backend import Backend
from service.connectors.ports.source import Source, SplitPiece, SplitReader
from tests.service.connectors.backend_contract import (
    BackendContract,
    OpenBackend,
    fetch,
)
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.connectors.fake_source import FakeSource
from tests.service.connectors.parquet.parquet_folders import OFFERED, SCHEMA, write_rows
from tests.service.connectors.source_contract import (
    PausableSourceContract,
    RepeatableSourceContract,
    SourceCase,
)

NAMES = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))


def fake_of(rows: pa.Table, *key: str) -> FakeBackend:
    """A fake that offers all columns but the key."""
    fields = [*rows.schema]
    schema = DimensionSchema(
        pa.schema([rows.schema.field(name) for name in key]),
        pa.schema([field for field in fields if field.name not in key]),
    )
    return FakeBackend(rows, schema)


class SmallestBackend(Backend):
    """Rows in memory, by the two methods that a backend needs."""

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self._rows, self._key = rows, key

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The types of the rows."""
        del timeout_s
        others = [name for name in self._rows.column_names if name not in self._key]
        return DimensionSchema(*(self._rows.select(each).schema for each in (self._key, others)))

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, from an index over all rows."""
        schema = await self.describe(timeout_s=timeout_s)
        index = defaultdict[tuple[Any, ...], list[int]](list)
        parts = self._rows.select(self._key).to_pydict().values()
        for row, key in enumerate(zip(*parts, strict=True)):
            index[key].append(row)
        wanted = enumerate(zip(*keys.to_pydict().values(), strict=True))
        found = [(at, row) for at, key in wanted for row in index[key]]
        taken = self._rows.take(pa.array([row for _, row in found], pa.int64()))
        columns = [taken[name].combine_chunks() for name in schema.columns.names]
        ordinals = np.array([at for at, _ in found], np.int32)
        return FetchedRows(ordinals, pa.record_batch(columns, schema=schema.columns))


class SmallestSource(Source):
    """One split of numbered changes without end, by the three methods that a source needs."""

    def reader(self, schema: DimensionSchema) -> SplitReader:
        """A reader of these changes."""
        del schema  # the changes have it
        return SmallestReader()


class SmallestReader(SplitReader):
    """Reports the changes behind the position once, and then that it is caught up."""

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Continue at the position, a number of changes."""
        self._split, self._position = split, position or 0

    async def read(self) -> Sequence[SplitPiece]:
        """The next change, if there is one."""
        await asyncio.sleep(0)
        changes = CHANGES[self._position : self._position + 1]
        self._position += len(changes)
        is_caught_up = self._position == len(CHANGES)
        return [SplitPiece(self._split.id, self._position, changes, is_caught_up=is_caught_up)]


class TestBackends(BackendContract):
    """The backend contract; equal keys have all of their rows."""

    @pytest.fixture(params=["fake", "smallest", ParquetBackend, ParquetScan])
    def open_backend(self, request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
        """Opens the backend over the rows."""
        if request.param == "fake":
            return lambda rows, key: fake_of(rows, *key)
        if request.param == "smallest":
            return SmallestBackend

        @asynccontextmanager
        async def opened(
            rows: pa.Table, key: Sequence[str]
        ) -> AsyncIterator[ParquetBackend | ParquetScan]:
            pq.write_table(rows, tmp_path / "rows.parquet")
            async with request.param(tmp_path / "rows.parquet", key) as backend:
                yield backend

        return opened

    async def test_equal_keys_have_all_rows(self, open_backend: OpenBackend) -> None:
        """Two rows with one key are both fetched."""
        rows = pa.table({"k": [1, 2, 1], "v": ["a", "b", "c"]})

        fetched = await fetch(open_backend, rows, {"k": [2, 1]})

        assert fetched.ordinals.tolist() == [0, 1, 1]
        assert fetched.rows["v"].to_pylist() == ["b", "a", "c"]


def row_changes(*ids: int) -> RowChanges:
    """Rows of these ids."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], NAMES.key)
    rows = pa.record_batch([pa.array([f"name {each}" for each in ids])], NAMES.columns)
    has_row = np.ones(len(ids), np.bool_)
    return RowChanges(keys, has_row, ~has_row, rows, np.arange(len(ids), dtype=np.uint32))


def piece(*changes: RowChanges | TableChange) -> SplitPiece:
    """A piece of any split."""
    return SplitPiece("", 0, changes=changes)


CHANGES = [row_changes(each, -each) for each in range(3)]


class TestSmallestSource(RepeatableSourceContract):
    """The source contract over one split with the defaults of the port."""

    @pytest.fixture
    def case(self) -> SourceCase:
        """Three changes."""
        return SourceCase(SmallestSource(), NAMES)


class TestFakeSource(PausableSourceContract):
    """The source contract over the fake, in each mode."""

    @pytest.fixture(params=[(bounded, mode) for bounded in (True, False) for mode in ReadingMode])
    def case(self, request: pytest.FixtureRequest) -> SourceCase:
        """Three splits, one of them without a piece."""
        is_bounded, mode = request.param
        source = FakeSource(is_bounded=is_bounded, reading_mode=mode)
        source.add("a", *(piece(row_changes(each, -each)) for each in range(5)))
        source.add("b", piece(row_changes(7)), piece(TableChange("truncated")), piece())
        source.add("c")
        return SourceCase(source, NAMES)


class TestParquetRowGroups(RepeatableSourceContract):
    """The source contract over a Parquet file."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """Three row groups, two of them of several batches."""
        write_rows(tmp_path / "a.parquet", range(40_000), row_group_size=17_000)
        return SourceCase(ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED), SCHEMA)
