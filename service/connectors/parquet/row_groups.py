"""Parquet source: a bounded load with a split for each row group."""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.row_bytes import ROW_BYTES, most_row_bytes, row_bytes
from lookup_core.sources.splits import Split
from service.connectors.parquet.file import (
    check_parquet_schema,
    parquet_dataset,
    parquet_errors,
    replaced_file,
)
from service.connectors.parquet.file_thread import FileThread
from service.connectors.parquet.rows import parquet_batches
from service.connectors.ports.resource import Resource
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.file_identity import FileIdentity


@dataclass(frozen=True, slots=True)
class ParquetRowGroup(Split):
    """One row group; its position counts the rows that were read."""

    fragment: ds.ParquetFileFragment  # this row group alone
    identity: FileIdentity
    total: int  # rows


class ParquetRowGroups(Source):
    """All rows of a file or folder, read in a thread, one row group after the other.

    A load fails if a file is replaced before its end: it would mix rows of both files.
    """

    is_bounded = True

    def __init__(
        self, path: Path, *, columns: Sequence[str] | None = None, row_bytes: int = ROW_BYTES
    ) -> None:
        self._path = path
        self._columns = columns
        self._row_bytes = row_bytes

    def enumerator(self, schema: DimensionSchema) -> "ParquetRowGroupEnumerator":
        """An enumerator; its first `discover` fixes the files and their identities."""
        return ParquetRowGroupEnumerator(self._path, schema, columns=self._columns)

    def reader(self, schema: DimensionSchema) -> "ParquetRowGroupReader":
        """A reader of the schema's columns, in its types."""
        return ParquetRowGroupReader(self._path, schema, row_bytes=self._row_bytes)


class ParquetRowGroupEnumerator(SplitEnumerator):
    """Lists row groups; keeps no file open."""

    def __init__(
        self, path: Path, schema: DimensionSchema, *, columns: Sequence[str] | None
    ) -> None:
        self._path = path
        self._schema = schema
        self._columns = columns
        self._splits: Sequence[ParquetRowGroup] | None = None

    async def discover(self) -> Sequence[ParquetRowGroup]:
        """The row groups at the first call; raises BackendError `schema_changed`."""
        if self._splits is None:
            with closing(FileThread(self._path)) as thread:
                self._splits = await thread.run(lambda _: self._row_groups(), timeout_s=None)
        return self._splits

    def _row_groups(self) -> Sequence[ParquetRowGroup]:
        with parquet_errors(self._path):
            dataset = parquet_dataset(self._path)
            check_parquet_schema(self._path, dataset, self._schema, columns=self._columns)
            return [group for file in dataset.get_fragments() for group in self._groups(file)]

    def _groups(self, file: ds.ParquetFileFragment) -> Iterator[ParquetRowGroup]:
        folder = self._path if self._path.is_dir() else self._path.parent
        name, identity = Path(file.path).relative_to(folder), FileIdentity.of(file.path)
        for group in file.row_groups:
            fragment = file.subset(row_group_ids=[group.id])
            yield ParquetRowGroup(
                f"{name} row group {group.id}", fragment, identity, total=group.num_rows
            )


class ParquetRowGroupReader(Resource, SplitReader):
    """Reads one row group at a time; when it is closed, its thread finishes the current batch."""

    def __init__(self, path: Path, schema: DimensionSchema, *, row_bytes: int) -> None:
        self._path = path
        self._schema = schema
        self._row_bytes = row_bytes
        self._split: ParquetRowGroup
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._position = 0
        self._thread = FileThread(path)

    async def open(self, stack: AsyncExitStack) -> None:
        """Leave the file to `assign`."""
        stack.callback(self._thread.close)

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this row group next."""
        assert isinstance(split, ParquetRowGroup)
        self._split, self._position = split, position or 0
        self._batches = self._read(split, self._position)

    async def read(self) -> Sequence[SplitPiece]:
        """The next rows; raises BackendError."""
        split = self._split
        batch = await self._thread.run(lambda _: self._next(split), timeout_s=None)
        return [self._piece(split, batch)]

    def _next(self, split: ParquetRowGroup) -> pa.RecordBatch:
        with parquet_errors(self._path):
            end = pa.RecordBatch.from_pylist([], self._schema.key)
            batch = next(self._batches, end)
            # Checked after the read: an unchanged identity also covers the time before.
            if FileIdentity.of(split.fragment.path) == split.identity:
                return batch
        raise replaced_file(self._path)

    def _read(self, split: ParquetRowGroup, position: int) -> Iterator[pa.RecordBatch]:
        for batch in parquet_batches(split.fragment, self._schema):
            skipped = min(position, batch.num_rows)
            position -= skipped
            if skipped < batch.num_rows:
                yield batch.slice(skipped)

    def _piece(self, split: ParquetRowGroup, batch: pa.RecordBatch) -> SplitPiece:
        self._position += batch.num_rows
        is_finished = self._position >= split.total or not batch.num_rows
        changes = []
        if batch.num_rows:
            keys, rows = (
                batch.select(part.names) for part in (self._schema.key, self._schema.columns)
            )
            has_row = None  # for each row
            if most_row_bytes(rows) > self._row_bytes:
                has_row = row_bytes(rows) <= self._row_bytes
            changes.append(RowChanges.loaded(keys, rows, has_row))
        return SplitPiece(
            split.id, self._position, changes, is_finished=is_finished, total=split.total
        )
