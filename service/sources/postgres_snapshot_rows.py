"""The rows of one page, from the server's blocks to columns.

Knows no connection; how blocks are read stands in the backend of lookups, so that both read the
same values.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change import UNKNOWN_TRANSACTION, RowChanges
from service.backends.postgres_blocks import rows_of_blocks
from service.backends.postgres_table import PostgresTable
from service.sources.postgres_snapshot_query import with_keys


def postgres_snapshot_rows(blocks: Sequence[bytes | None], table: PostgresTable) -> RowChanges:
    """The rows of a page, but for those whose key no lookup can have (a time beyond year 9999).

    Raises BackendError `schema_changed` when they are not what was described.
    """
    fetched = rows_of_blocks(blocks, with_keys(table), key_count=1)
    columns, schema = fetched.rows.columns, table.schema
    keys = [column.cast(field.type) for column, field in zip(columns, schema.key, strict=False)]
    key = pa.record_batch(keys, schema=schema.key)
    rows = pa.record_batch(columns[len(keys) :], schema=schema.columns)
    is_whole = np.ones(key.num_rows, np.bool_)
    for part in key.columns:
        is_whole &= part.is_valid().to_numpy(zero_copy_only=False)
    if not is_whole.all():
        key, rows = key.filter(pa.array(is_whole)), rows.filter(pa.array(is_whole))
    return RowChanges(
        keys=key,
        has_row=np.ones(key.num_rows, np.bool_),
        is_gone=np.zeros(key.num_rows, np.bool_),
        rows=rows,
        transaction_ids=np.full(key.num_rows, UNKNOWN_TRANSACTION, np.uint32),
    )
