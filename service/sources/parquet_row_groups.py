"""A Parquet file, or a folder of them, as a bounded source: each row group is a split.

Only what is made for whom; how a row group is read stands in `parquet_row_group_reader`.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow.dataset as ds

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.reading_mode import ReadingMode
from service.backends.file_identity import FileIdentity
from service.backends.file_thread import FileThread
from service.backends.parquet_file import check_parquet_schema, parquet_dataset, parquet_errors
from service.sources.parquet_row_group import ParquetRowGroup
from service.sources.parquet_row_group_reader import ParquetRowGroupReader


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
