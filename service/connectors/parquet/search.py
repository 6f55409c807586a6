"""Key search in a Parquet file or folder, without an index.

Skips row groups by their statistics, and reads the others; holds matching rows only.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import types

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file import (
    ONE_ROW,
    ParquetFile,
    RowLimit,
    check_parquet_schema,
    parquet_dataset,
    parquet_errors,
    unreplaced_files,
)
from service.connectors.parquet.file_thread import IsAbandoned
from service.connectors.parquet.rows import opened_rows, row_fields

# Types whose statistics all writers sort as comparisons do.
_HAS_ORDERED_STATISTICS = (
    *(types.is_signed_integer, types.is_string, types.is_binary),
    *(types.is_date32, types.is_timestamp),
)


def parquet_search(
    path: Path,
    keys: pa.RecordBatch,
    *,
    described: DimensionSchema,
    columns: Sequence[str] | None,
    is_abandoned: IsAbandoned,
    limit: RowLimit = ONE_ROW,
) -> FetchedRows:
    """The current rows of these keys.

    Blocks the thread; an abandoned search ends at its next batch. Raises BackendError:
    `schema_changed` if the columns differ from those described, `table_unavailable` if the file
    cannot be read or is replaced during the search.
    """
    with parquet_errors(path), unreplaced_files(path):
        dataset = parquet_dataset(path)
        check_parquet_schema(path, dataset, described, columns=columns)
        fields = row_fields(described)
        batches = [
            batch
            for fragment in dataset.get_fragments()
            for batch in _candidates(fragment, keys, fields=fields, is_abandoned=is_abandoned)
        ]
    table = pa.Table.from_batches(batches, fields)
    return ParquetFile(described, table, limit=limit).find(keys)


def _candidates(
    fragment: ds.ParquetFileFragment,
    keys: pa.RecordBatch,
    *,
    fields: pa.Schema,
    is_abandoned: IsAbandoned,
) -> Iterator[pa.RecordBatch]:
    """Rows in which each key column has the value of some key."""
    pruned = _pruned(fragment, keys)
    if not pruned.row_groups:
        return
    with opened_rows(pruned) as rows:
        for group in pruned.row_groups:
            # Key columns first: they are small, and most row groups contain no key.
            key_batches = _until_abandoned(rows.steps(group.id, keys.schema), is_abandoned)
            if any(_filtered(batch, keys).num_rows for batch in key_batches):
                batches = _until_abandoned(rows.steps(group.id, fields), is_abandoned)
                yield from (_filtered(batch, keys) for batch in batches)


def _until_abandoned(
    batches: Iterator[pa.RecordBatch], is_abandoned: IsAbandoned
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if is_abandoned():
            raise BackendError(ErrorCode.TIMEOUT, "the caller no longer waits for these rows")
        yield batch


def _pruned(fragment: ds.ParquetFileFragment, keys: pa.RecordBatch) -> ds.ParquetFileFragment:
    """The fragment without the row groups whose statistics exclude all keys."""
    stored = fragment.physical_schema
    conditions = [
        pc.field(part.name).isin(keys.column(part.name))
        for part in keys.schema
        if any(is_type(part.type) for is_type in _HAS_ORDERED_STATISTICS)
        and part.name in stored.names
        and stored.field(part.name).type == part.type
    ]
    return fragment.subset(filter=reduce(and_, conditions)) if conditions else fragment


def _filtered(batch: pa.RecordBatch, keys: pa.RecordBatch) -> pa.RecordBatch:
    for name in keys.schema.names:
        batch = batch.filter(pc.is_in(batch.column(name), value_set=keys.column(name)))
    return batch
