"""Whether what comes from PostgreSQL is what was asked, and what was described.

How values get into Arrow stands in `postgres_rows` and `postgres_blocks`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import FetchedRows
from service.backends.postgres_table import PostgresTable
from service.backends.postgres_types import ColumnReading


def checked_rows(
    ordinals: npt.NDArray[np.int64],
    columns: Sequence[pa.Array],
    table: PostgresTable,
    *,
    key_count: int,
) -> FetchedRows:
    """At least one row, with ordinals from 1, for so many keys.

    Raises BackendError `internal` when the server answered what was not asked.
    """
    fits = ordinals.min() >= 1 and ordinals.max() <= key_count
    if not fits or [len(column) for column in columns] != [len(ordinals)] * len(table.columns):
        detail = f"the server answered {len(ordinals)} rows that fit no query for {key_count} keys"
        raise BackendError(ErrorCode.INTERNAL, detail)
    rows = pa.record_batch(columns, schema=table.schema.columns)
    return FetchedRows((ordinals - 1).astype(np.int32), rows)


def no_rows(table: PostgresTable) -> FetchedRows:
    """What is fetched where no key has a row."""
    none = pa.RecordBatch.from_pylist([], table.schema.columns)
    return FetchedRows(np.empty(0, np.int32), none)


@contextmanager
def as_described(name: str, reading: ColumnReading) -> Iterator[None]:
    """Raise BackendError `schema_changed` where values do not fit the column's type."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:  # ArrowInvalid is a ValueError
        detail = f"column {name} no longer holds {reading.type}; describe the table anew"
        raise BackendError(ErrorCode.SCHEMA_CHANGED, detail) from error
