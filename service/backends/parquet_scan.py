"""A dimension that is a Parquet file, of which nothing is held: each fetch searches it.

For a table that is held whole elsewhere, so that only what cannot be held is asked for here.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from service.backends.file_thread import FileThread
from service.backends.interface import FetchedRows
from service.backends.parquet_file import parquet_schema
from service.backends.parquet_search import parquet_search

log = structlog.get_logger()


class ParquetScan:
    """The rows of the file that is there now; a key may have several."""

    def __init__(
        self, path: Path, key: Sequence[str], *, columns: Sequence[str] | None = None
    ) -> None:
        self._path = path
        self._columns = columns
        self._read_schema = partial(parquet_schema, path, key, columns=columns)
        self._thread = FileThread(path)
        self._described: DimensionSchema | None = None

    @property
    def uses_index(self) -> bool:
        """Never: a file has none."""
        return False

    async def __aenter__(self) -> Self:
        """Nothing to prepare: the file may come later."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the thread end."""
        self._thread.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The columns of the file that is there now; those of a former one while it is unfit.

        What was loaded of that one stays the dimension's, until another can be loaded. Raises
        BackendError (`table_unavailable`, `forbidden`, `timeout`) if there was none.
        """
        try:
            self._described = await self._thread.run(
                lambda _: self._read_schema(), timeout_s=timeout_s
            )
        except BackendError as error:
            if self._described is None:
                raise
            log.warning("dimension.file_unavailable", code=error.code, detail=error.detail)
        return self._described

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing: whether the file can be read is told by who reads it."""

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys.

        Raises BackendError (`table_unavailable`, `forbidden`, `timeout`); `schema_changed` if the
        file has other columns than those described.
        """
        assert self._described is not None, "describe comes first"
        search = partial(
            parquet_search, self._path, keys, described=self._described, columns=self._columns
        )
        return await self._thread.run(lambda is_left: search(is_left=is_left), timeout_s=timeout_s)
