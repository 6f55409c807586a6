"""All rows of a key as one row of lists."""

import numpy as np
import pyarrow as pa

from service.connectors.ports.several_rows import list_columns, row_lists

COLUMNS = pa.schema({"name": pa.utf8(), "size": pa.int32()})


def test_rows_between_starts_are_one() -> None:
    """Each start begins a row, which has the values up to the next one."""
    rows = pa.record_batch([pa.array(["a", None, "c"]), pa.array([1, 2, 3], pa.int32())], COLUMNS)

    lists = row_lists(rows, np.array([0, 2]))

    assert lists.schema == list_columns(COLUMNS)
    assert lists.to_pydict() == {"name": [["a", None], ["c"]], "size": [[1, 2], [3]]}


def test_no_rows_are_no_lists() -> None:
    """Without a start there is nothing, of the right types."""
    rows = pa.record_batch([pa.nulls(0, kind) for kind in COLUMNS.types], COLUMNS)

    lists = row_lists(rows, np.zeros(0, np.int64))

    assert (lists.num_rows, lists.schema) == (0, list_columns(COLUMNS))
