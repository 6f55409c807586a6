"""Reads row groups, one after the other, a batch of rows at a time.

The files may be replaced at any time; rows of a file that is not the one that was found are not
told.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change import UNKNOWN_TRANSACTION, RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.split import Split
from service.backends.file_identity import FileIdentity
from service.backends.file_thread import FileThread
from service.backends.parquet_batches import parquet_batches
from service.backends.parquet_file import parquet_errors
from service.sources.interface import SplitPiece
from service.sources.parquet_row_group import ParquetRowGroup
from service.sources.pending_read import WAIT_S, PendingRead


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
