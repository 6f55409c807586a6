"""Loaded rows of a table, as changes of their keys."""

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges


def loaded_rows(keys: pa.RecordBatch, rows: pa.RecordBatch) -> RowChanges:
    """Each row as the current row of its key; rows with a NULL in the key are left out."""
    is_whole = np.ones(keys.num_rows, np.bool_)
    for column in keys.columns:
        is_whole &= column.is_valid().to_numpy(zero_copy_only=False)
    if not is_whole.all():
        keys, rows = keys.filter(pa.array(is_whole)), rows.filter(pa.array(is_whole))
    count = keys.num_rows
    return RowChanges(
        keys=keys,
        has_row=np.ones(count, np.bool_),
        is_gone=np.zeros(count, np.bool_),
        rows=rows,
        transaction_ids=np.full(count, UNKNOWN_TRANSACTION, np.uint32),
    )
