"""Finds the rows of some keys in a Parquet file (or folder of them), and holds little of it.

Not an index: what cannot be excluded by what the file says of its row groups is read.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file import (
    ParquetFile,
    check_parquet_schema,
    parquet_dataset,
    parquet_errors,
    unreplaced_files,
)
from service.connectors.parquet.file_thread import IsLeft
from service.connectors.parquet.rows import ParquetRows, row_fields
from service.connectors.ports.backend import FetchedRows

# Of these the least and the greatest value that a file tells of a row group are in the order that
# they are compared in, by whomever they were written.
_IS_ORDERED = (
    *(types.is_signed_integer, types.is_string, types.is_binary),
    *(types.is_date32, types.is_timestamp),
)


def parquet_search(
    path: Path,
    keys: pa.RecordBatch,
    *,
    described: DimensionSchema,
    columns: Sequence[str] | None,
    is_left: IsLeft,
) -> FetchedRows:
    """The rows of these keys as the file has them now.

    Blocks, at most for one more batch when nobody waits any more. Raises BackendError:
    `schema_changed` if the file is not what was described, `table_unavailable` if it is another one
    at the end.
    """
    with parquet_errors(path), unreplaced_files(path):
        dataset = parquet_dataset(path)
        check_parquet_schema(path, dataset, described, columns=columns)
        fields = row_fields(described)
        batches = [
            batch
            for fragment in dataset.get_fragments()
            for batch in _matches(fragment, keys, fields=fields, is_left=is_left)
        ]
    found = pa.Table.from_batches(batches, fields)
    parts = {name: found.column(name) for name in found.column_names}
    return ParquetFile.of(described, parts).find(keys)


def _matches(
    fragment: ds.ParquetFileFragment,
    keys: pa.RecordBatch,
    *,
    fields: pa.Schema,
    is_left: IsLeft,
) -> Iterator[pa.RecordBatch]:
    """The rows that could have one of the keys: each part of theirs is a part of some key."""
    possible = _possible(fragment, keys)
    if not possible.row_groups:
        return
    with ParquetRows(possible) as rows:
        for group in possible.row_groups:
            # The other columns are most of the bytes, and most row groups have none of the keys.
            alone = _while_awaited(rows.steps(group.id, keys.schema), is_left)
            if any(_among(batch, keys).num_rows for batch in alone):
                whole = _while_awaited(rows.steps(group.id, fields), is_left)
                yield from (_among(batch, keys) for batch in whole)


def _while_awaited(batches: Iterator[pa.RecordBatch], is_left: IsLeft) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if is_left():
            raise BackendError(ErrorCode.TIMEOUT, "nobody waits for these rows any more")
        yield batch


def _possible(fragment: ds.ParquetFileFragment, keys: pa.RecordBatch) -> ds.ParquetFileFragment:
    """What of the file may have a row with one of the keys, by what it says of its row groups."""
    stored = fragment.physical_schema
    conditions = [
        pc.field(part.name).isin(keys.column(part.name))
        for part in keys.schema
        if any(is_type(part.type) for is_type in _IS_ORDERED)
        and part.name in stored.names
        and stored.field(part.name).type == part.type
    ]
    return fragment.subset(filter=reduce(and_, conditions)) if conditions else fragment


def _among(batch: pa.RecordBatch, keys: pa.RecordBatch) -> pa.RecordBatch:
    for name in keys.schema.names:
        batch = batch.filter(pc.is_in(batch.column(name), value_set=keys.column(name)))
    return batch
