"""Rows of Parquet row groups, read in order and in bounded steps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lookup_core.dimension_schema import DimensionSchema

_MIN_STEP_ROWS = 512
_MAX_STEP_ROWS = 4_096
_STEP_BYTES = 8 * 2**20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 2**20


def row_fields(schema: DimensionSchema) -> pa.Schema:
    """Key and columns, each once."""
    return pa.schema([*{field.name: field for field in (*schema.key, *schema.columns)}.values()])


def parquet_batches(
    fragment: ds.ParquetFileFragment, schema: DimensionSchema
) -> Iterator[pa.RecordBatch]:
    """Key and columns of the fragment's row groups, in the schema's types.

    Blocks the thread. Raises OSError and Arrow's errors, also for a value that does not fit its
    type.
    """
    gathered: list[pa.RecordBatch] = []
    with opened_rows(fragment) as rows:
        for group in fragment.row_groups:
            for batch in rows.steps(group.id, row_fields(schema)):
                gathered.append(batch)
                if _is_full(gathered):
                    yield pa.concat_batches(gathered)
                    gathered = []
    if gathered:
        yield pa.concat_batches(gathered)


def _is_full(batches: list[pa.RecordBatch]) -> bool:
    rows = sum(batch.num_rows for batch in batches)
    return rows >= _BATCH_ROWS or sum(batch.nbytes for batch in batches) >= _BATCH_BYTES


@contextmanager
def opened_rows(fragment: ds.ParquetFileFragment) -> Iterator["ParquetRows"]:
    """The rows of a file of a dataset; raises OSError and Arrow's errors."""
    with pq.ParquetFile(fragment.path) as file:
        yield ParquetRows(file, ds.get_partition_keys(fragment.partition_expression))


class ParquetRows:
    """One open file of a dataset; all calls block, and raise OSError and Arrow's errors."""

    def __init__(self, file: pq.ParquetFile, partition_keys: Mapping[str, Any]) -> None:
        self._file = file
        self._partition_keys = partition_keys

    def steps(self, group: int, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of the row group in small batches; a value that does not fit raises."""
        step_rows = self._step_rows(group, fields)
        return (self._cast(batch, fields) for batch in self._stored(group, fields, step_rows))

    def _step_rows(self, group: int, fields: pa.Schema) -> int:
        """The number of rows per batch, estimated from the first rows.

        Metadata does not give the size in memory: a value that is stored once may be in every row.
        """
        if self._file.metadata.row_group(group).num_rows <= _MIN_STEP_ROWS:
            return _MIN_STEP_ROWS
        first = self._cast(next(self._stored(group, fields, _MIN_STEP_ROWS)), fields)
        fitting = _STEP_BYTES * first.num_rows // max(first.nbytes, 1)
        return min(max(fitting, _MIN_STEP_ROWS), _MAX_STEP_ROWS)

    def _stored(self, group: int, fields: pa.Schema, step_rows: int) -> Iterator[pa.RecordBatch]:
        stored = {*self._file.schema_arrow.names} - {*self._partition_keys}
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_size=step_rows,
            row_groups=[group],
            columns=[name for name in fields.names if name in stored],
            use_threads=False,  # keeps the order
        )
        return batches

    def _cast(self, batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
        return pa.record_batch([self._column(batch, field) for field in fields], schema=fields)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        # A partition key, or null: files of a folder may lack columns of other files.
        value = pa.scalar(self._partition_keys.get(field.name), field.type)
        return pa.repeat(value, batch.num_rows)
