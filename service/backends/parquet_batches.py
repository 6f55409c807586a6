"""The rows of a Parquet file in batches that are not too large to take, in their order.

Not by a dataset's own batches, for which it unpacks all of a row group first.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lookup_core.dimension_schema import DimensionSchema

# What is stored once may stand in every row, so that the bytes of rows are known only when they
# are unpacked: few at a time.
_STEP_ROWS = 512
_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 2**20


def parquet_batches(
    fragment: ds.ParquetFileFragment, schema: DimensionSchema
) -> Iterator[pa.RecordBatch]:
    """Key and columns of the fragment's row groups, in the schema's types.

    Blocks. Raises what Arrow raises, also for a value that does not fit its type, and OSError.
    """
    gathered: list[pa.RecordBatch] = []
    for batch in _steps(fragment, {field.name: field for field in (*schema.key, *schema.columns)}):
        gathered.append(batch)
        if _is_enough(gathered):
            yield pa.concat_batches(gathered)
            gathered = []
    if gathered:
        yield pa.concat_batches(gathered)


def _steps(
    fragment: ds.ParquetFileFragment, fields: dict[str, pa.Field]
) -> Iterator[pa.RecordBatch]:
    told = ds.get_partition_keys(fragment.partition_expression)  # by the file's path
    groups = [group.id for group in fragment.row_groups]
    with pq.ParquetFile(fragment.path) as file:
        stored = {*file.schema_arrow.names} - {*told}
        for batch in file.iter_batches(
            batch_size=_STEP_ROWS,
            row_groups=groups,
            columns=[name for name in fields if name in stored],
            use_threads=False,  # which keeps the order
        ):
            columns = [_column(batch, field, told) for field in fields.values()]
            yield pa.record_batch(columns, schema=pa.schema([*fields.values()]))


def _column(batch: pa.RecordBatch, field: pa.Field, told: dict[str, Any]) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    # A file of a folder need not have all columns that others have.
    return pa.repeat(pa.scalar(told.get(field.name), field.type), batch.num_rows)


def _is_enough(batches: list[pa.RecordBatch]) -> bool:
    rows = sum(batch.num_rows for batch in batches)
    return rows >= _BATCH_ROWS or sum(batch.nbytes for batch in batches) >= _BATCH_BYTES
