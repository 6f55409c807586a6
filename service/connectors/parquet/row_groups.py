"""Parquet source: each row group is a split."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.parquet.file import (
    FileIdentity,
    check_parquet_schema,
    parquet_dataset,
    parquet_errors,
)
from service.connectors.parquet.file_thread import FileThread
from service.connectors.parquet.rows import parquet_batches
from service.connectors.ports.source import SplitPiece
from service.connectors.ports.split_read import WAIT_S, PendingRead


@dataclass(frozen=True, slots=True)
class ParquetRowGroup(Split):
    """Its position is how many of its rows were read."""

    fragment: ds.ParquetFileFragment  # of this row group alone
    identity: FileIdentity
    total: int  # rows


class ParquetRowGroupReader:
    """One row group at a time, which is read to its end before the next is assigned.

    Cancellation and closing leave a thread behind that ends when it has read its batch.
    """

    def __init__(self, path: Path, schema: DimensionSchema) -> None:
        self._path = path
        self._schema = schema
        self._split: ParquetRowGroup | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._position = 0
        self._thread = FileThread(path)
        self._is_paused = False
        self._coming: PendingRead[pa.RecordBatch] = PendingRead()

    async def __aenter__(self) -> Self:
        """Nothing to prepare."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the file."""
        await self._coming.cancel()
        self._thread.close()
        self._batches = iter(())

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this row group next."""
        assert isinstance(split, ParquetRowGroup)
        self._split, self._position = split, position or 0
        self._batches = self._read(split, self._position)

    async def read(self) -> Sequence[SplitPiece]:
        """The next rows, or a sign of life while they are read.

        Raises BackendError: `table_unavailable` when the file is another one now.
        """
        if self._split is None or self._is_paused:
            await asyncio.sleep(WAIT_S)
            return []
        if not self._coming.is_begun:
            split = self._split
            self._coming.begin(self._thread.run(lambda _: self._next(split), timeout_s=None))
        batch = await self._coming.take()
        if batch is None:
            return [SplitPiece(self._split.id, self._position, total=self._split.total)]
        return [self._piece(self._split, batch)]

    def pause(self, split_ids: Collection[str]) -> None:
        """Read nothing of the row group if it is named, until it is not."""
        self._is_paused = self._split is not None and self._split.id in split_ids

    def _next(self, split: ParquetRowGroup) -> pa.RecordBatch:
        with parquet_errors(self._path):
            none = pa.RecordBatch.from_pylist([], self._schema.key)
            batch = next(self._batches, none)
            # After it was read: what is still the file that was found was it before, too.
            if FileIdentity.of(Path(split.fragment.path)) == split.identity:
                return batch
        detail = f"{self._path}: was replaced while it was read"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)

    def _read(self, split: ParquetRowGroup, position: int) -> Iterator[pa.RecordBatch]:
        for batch in parquet_batches(split.fragment, self._schema):
            skipped = min(position, batch.num_rows)
            position -= skipped
            if skipped < batch.num_rows:
                yield batch.slice(skipped)

    def _piece(self, split: ParquetRowGroup, batch: pa.RecordBatch) -> SplitPiece:
        self._position += batch.num_rows
        is_finished = self._position >= split.total or not batch.num_rows
        changes = [self._changes(batch)] if batch.num_rows else []
        return SplitPiece(
            split_id=split.id,
            position=self._position,
            changes=changes,
            nbytes=sum(each.keys.nbytes + each.rows.nbytes for each in changes),
            is_caught_up=is_finished,
            is_finished=is_finished,
            total=split.total,
        )

    def _changes(self, batch: pa.RecordBatch) -> RowChanges:
        key, rows = (batch.select(each.names) for each in (self._schema.key, self._schema.columns))
        is_whole = np.ones(batch.num_rows, np.bool_)
        for part in key.columns:
            is_whole &= part.is_valid().to_numpy(zero_copy_only=False)
        return RowChanges(
            keys=key.filter(pa.array(is_whole)),
            has_row=np.ones(int(is_whole.sum()), np.bool_),
            is_gone=np.zeros(int(is_whole.sum()), np.bool_),
            rows=rows.filter(pa.array(is_whole)),
            transaction_ids=np.full(int(is_whole.sum()), UNKNOWN_TRANSACTION, np.uint32),
        )


class ParquetRowGroups:
    """Row groups are read one after the other, each in a thread.

    A file that is replaced while it is read makes the load fail: half of it would be another one's.
    """

    is_bounded = True
    reading_mode = ReadingMode.SEQUENTIAL

    def __init__(self, path: Path, *, columns: Sequence[str] | None = None) -> None:
        self._path = path
        self._columns = columns

    def enumerator(self, schema: DimensionSchema) -> "ParquetRowGroupEnumerator":
        """Notes which files there are, and how they are, when it is first asked."""
        return ParquetRowGroupEnumerator(self._path, schema, columns=self._columns)

    def reader(self, schema: DimensionSchema) -> ParquetRowGroupReader:
        """Reads the columns of the schema, in its types."""
        return ParquetRowGroupReader(self._path, schema)


class ParquetRowGroupEnumerator:
    """Holds no file open."""

    discovery_interval_s = None

    def __init__(
        self, path: Path, schema: DimensionSchema, *, columns: Sequence[str] | None
    ) -> None:
        self._path = path
        self._schema = schema
        self._columns = columns
        self._thread = FileThread(path)
        self._splits: Sequence[ParquetRowGroup] | None = None

    async def __aenter__(self) -> Self:
        """Nothing to prepare."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the thread end."""
        self._thread.close()

    async def discover(self) -> Sequence[ParquetRowGroup]:
        """The row groups that there were when it was first asked.

        Raises BackendError: `schema_changed` if the files are not what was described.
        """
        if self._splits is None:
            self._splits = await self._thread.run(lambda _: self._row_groups(), timeout_s=None)
        return self._splits

    def _row_groups(self) -> Sequence[ParquetRowGroup]:
        with parquet_errors(self._path):
            dataset = parquet_dataset(self._path)
            check_parquet_schema(self._path, dataset, self._schema, columns=self._columns)
            folder = self._path if self._path.is_dir() else self._path.parent
            return [group for file in dataset.get_fragments() for group in _groups(file, folder)]


def _groups(file: ds.ParquetFileFragment, folder: Path) -> Sequence[ParquetRowGroup]:
    identity = FileIdentity.of(Path(file.path))
    name = Path(file.path).relative_to(folder)
    return [
        ParquetRowGroup(
            id=f"{name} row group {group.id}",
            fragment=file.subset(row_group_ids=[group.id]),
            identity=identity,
            total=group.num_rows,
        )
        for group in file.row_groups
    ]
