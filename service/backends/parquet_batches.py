"""All rows of a Parquet file in batches that are not too large to take, in their order.

Not what one row group is read by, which is `parquet_rows`: small ones are put together here.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.dimension_schema import DimensionSchema
from service.backends.parquet_rows import ParquetRows, row_fields

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
