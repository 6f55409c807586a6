"""Row groups of a Parquet file, read in bounded steps, in order."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lookup_core.dimension_schema import DimensionSchema

_FEW_ROWS = 512
_STEP_ROWS = 4_096
_STEP_BYTES = 8 * 2**20


class ParquetRows:
    """One file of a dataset; all of it blocks, and raises what Arrow raises, and OSError."""

    def __init__(self, fragment: ds.ParquetFileFragment) -> None:
        self._file = pq.ParquetFile(fragment.path)
        self._told = ds.get_partition_keys(fragment.partition_expression)  # by the file's path

    def __enter__(self) -> Self:
        """The file is open."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self._file.close()

    def steps(self, group: int, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Some rows of the row group at a time; a value that does not fit its type is an error."""
        step_rows = self._step_rows(group, fields)
        return (self._plain(batch, fields) for batch in self._stored(group, fields, step_rows))

    def _step_rows(self, group: int, fields: pa.Schema) -> int:
        """How many rows to take at once.

        What is stored once may stand in every row, so that their bytes are known only when they
        are unpacked: a few of them first.
        """
        if self._file.metadata.row_group(group).num_rows <= _FEW_ROWS:
            return _FEW_ROWS
        few = self._plain(next(self._stored(group, fields, _FEW_ROWS)), fields)
        fitting = _STEP_BYTES * few.num_rows // max(few.nbytes, 1)
        return min(max(fitting, _FEW_ROWS), _STEP_ROWS)

    def _stored(self, group: int, fields: pa.Schema, step_rows: int) -> Iterator[pa.RecordBatch]:
        stored = {*self._file.schema_arrow.names} - {*self._told}
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_size=step_rows,
            row_groups=[group],
            columns=[name for name in fields.names if name in stored],
            use_threads=False,  # which keeps the order
        )
        return batches

    def _plain(self, batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
        columns = [_column(batch, field, self._told) for field in fields]
        return pa.record_batch(columns, schema=fields)


def row_fields(schema: DimensionSchema) -> pa.Schema:
    """Key and columns, each once."""
    return pa.schema([*{field.name: field for field in (*schema.key, *schema.columns)}.values()])


def _column(batch: pa.RecordBatch, field: pa.Field, told: dict[str, Any]) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    # A file of a folder need not have all columns that others have.
    return pa.repeat(pa.scalar(told.get(field.name), field.type), batch.num_rows)


_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 2**20


def parquet_batches(
    fragment: ds.ParquetFileFragment, schema: DimensionSchema
) -> Iterator[pa.RecordBatch]:
    """Key and columns of the fragment's row groups, in the schema's types.

    Blocks. Raises what Arrow raises, also for a value that does not fit its type, and OSError.
    """
    gathered: list[pa.RecordBatch] = []
    for batch in _steps(fragment, row_fields(schema)):
        gathered.append(batch)
        if _is_enough(gathered):
            yield pa.concat_batches(gathered)
            gathered = []
    if gathered:
        yield pa.concat_batches(gathered)


def _steps(fragment: ds.ParquetFileFragment, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    with ParquetRows(fragment) as rows:
        for group in fragment.row_groups:
            yield from rows.steps(group.id, fields)


def _is_enough(batches: list[pa.RecordBatch]) -> bool:
    rows = sum(batch.num_rows for batch in batches)
    return rows >= _BATCH_ROWS or sum(batch.nbytes for batch in batches) >= _BATCH_BYTES
