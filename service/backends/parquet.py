"""A dimension that is a Parquet file, held in memory: no database needed.

Not a stream of a file's row groups, and it does not follow changes: what was read first stays.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import FetchedRows
from service.backends.parquet_file import ParquetFile, load_parquet_file


class ParquetBackend:
    """The rows of a Parquet file, or of a folder of them; a key may have several rows."""

    def __init__(
        self, path: Path, key: Sequence[str], *, columns: Sequence[str] | None = None
    ) -> None:
        self._path = path
        self._key = key
        self._columns = columns
        self._file: ParquetFile | None = None

    @property
    def uses_index(self) -> bool:
        """Always: rows in memory have one."""
        return True

    async def __aenter__(self) -> Self:
        """Nothing to prepare: the file may come later."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the rows."""
        self._file = None

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the file in a thread, the first time; later it is only remembered.

        Raises BackendError (`table_unavailable`, `forbidden`; `timeout` when reading takes longer).
        Cancellation and the timeout leave a thread behind that ends when it has read the file.
        """
        if self._file is None:
            try:
                async with asyncio.timeout(timeout_s):
                    self._file = await asyncio.to_thread(
                        load_parquet_file, self._path, self._key, columns=self._columns
                    )
            except TimeoutError as error:
                detail = f"{self._path}: not read within {timeout_s} s"
                raise BackendError(ErrorCode.TIMEOUT, detail) from error
        return self._file.schema

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing: rows in memory do not go away."""

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, from memory; it waits for nothing, so the timeout never comes."""
        del timeout_s
        assert self._file is not None, "describe comes first"
        matches = self._file.index.find(keys)
        found = self._file.rows.take(pa.array(matches.positions, pa.int64()))
        columns = [column.combine_chunks() for column in found.columns]
        return FetchedRows(
            matches.ordinals, pa.record_batch(columns, schema=self._file.schema.columns)
        )
