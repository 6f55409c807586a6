"""All rows of a key as one row of lists, column by column.

Which rows these are, and in which order, is said by who asks for it.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def row_lists(rows: pa.RecordBatch, starts: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """One row for each start: of each column the values up to the next start."""
    offsets = pa.array(np.append(starts, rows.num_rows), pa.int32())
    columns = [pa.ListArray.from_arrays(offsets, column) for column in rows.columns]
    return pa.record_batch(columns, schema=list_columns(rows.schema))


def list_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of such rows."""
    return pa.schema([pa.field(field.name, pa.list_(field.type)) for field in columns])
