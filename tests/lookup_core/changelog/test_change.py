"""What a changelog tells, as values."""

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges, TableChange


def test_table_change_may_lack_a_transaction() -> None:
    """A change of the table that nobody's transaction explains has none."""
    assert TableChange("lost").transaction_id == UNKNOWN_TRANSACTION == 0


def test_row_changes_are_columns() -> None:
    """Changes of rows are as many in each column, without an object for each."""
    keys = pa.record_batch({"id": pa.array([1, 2])})
    mask = np.array([True, False])

    changes = RowChanges(keys, mask, ~mask, keys, np.array([7, 8], np.uint32))

    assert (changes.keys.num_rows, changes.is_gone.tolist()) == (2, [False, True])
