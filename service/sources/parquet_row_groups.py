"""A Parquet file, or a folder of them, as a bounded source: each row group is a split.

Only what is made for whom; how a row group is read stands in `parquet_row_group_reader`.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.reading_mode import ReadingMode
from service.backends.parquet_file import parquet_dataset, parquet_errors
from service.sources.parquet_row_group import FileIdentity, ParquetRowGroup
from service.sources.parquet_row_group_reader import ParquetRowGroupReader


class ParquetRowGroups:
    """Row groups are read one after the other, each in a thread.

    A file that is replaced while it is read makes the load fail: half of it would be another one's.
    """

    is_bounded = True
    reading_mode = ReadingMode.SEQUENTIAL

    def __init__(self, path: Path) -> None:
        self._path = path

    def enumerator(self, schema: DimensionSchema) -> "ParquetRowGroupEnumerator":
        """Notes which files there are, and how they are, when it is first asked."""
        del schema  # what does not fit it fails when it is read
        return ParquetRowGroupEnumerator(self._path)

    def reader(self, schema: DimensionSchema) -> ParquetRowGroupReader:
        """Reads the columns of the schema, in its types."""
        return ParquetRowGroupReader(self._path, schema)


class ParquetRowGroupEnumerator:
    """Holds no file open."""

    discovery_interval_s = None

    def __init__(self, path: Path) -> None:
        self._path = path
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
        """Nothing to let go of."""

    async def discover(self) -> Sequence[ParquetRowGroup]:
        """The row groups that there were when it was first asked; raises BackendError."""
        if self._splits is None:
            self._splits = await asyncio.to_thread(_row_groups, self._path)
        return self._splits


def _row_groups(path: Path) -> Sequence[ParquetRowGroup]:
    with parquet_errors(path):
        dataset = parquet_dataset(path)
        folder = path if path.is_dir() else path.parent
        return [
            group
            for file in dataset.get_fragments()
            for group in _groups(file, dataset.schema, folder)
        ]


def _groups(
    file: ds.ParquetFileFragment, schema: pa.Schema, folder: Path
) -> Sequence[ParquetRowGroup]:
    identity = FileIdentity.of(Path(file.path))
    name = Path(file.path).relative_to(folder)
    return [
        ParquetRowGroup(
            id=f"{name} row group {group.id}",
            fragment=file.subset(row_group_ids=[group.id]),
            schema=schema,
            identity=identity,
            total=group.num_rows,
        )
        for group in file.row_groups
    ]
