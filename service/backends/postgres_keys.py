"""Keys as asyncpg sends them, and in which order.

Columns at a time; nothing here waits or knows the network. Rows come back by `postgres_rows`.
"""

from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.keys.key_casts import UUID_FIELD

# Years 1 to 9999, like the columns: beyond, ISO 8601 needs signs and more digits.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def key_order(keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Where the keys stand that ascend: as in an index, so that neighbours share its pages.

    A text's order may be another one in the index; near is near all the same.
    """
    by_all = [(name, "ascending") for name in keys.schema.names]
    return pc.sort_indices(keys, sort_keys=by_all).to_numpy().astype(np.int32)


def key_arguments(keys: pa.RecordBatch, described: pa.Schema) -> list[Any]:
    """What each key column is sent as: a list, or for integers, which are never null, a text.

    A time that cannot be written becomes NULL: no row.
    """
    return [_argument(column, field) for column, field in zip(keys.columns, described, strict=True)]


def _argument(column: pa.Array, field: pa.Field) -> list[Any] | str:
    if types.is_date32(field.type):
        column = _within(column, pa.int32(), _DAYS).cast(pa.utf8())
    if types.is_timestamp(field.type):
        utc = _within(column, pa.int64(), _MICROSECONDS).cast(pa.timestamp("us")).cast(pa.utf8())
        column = utc if field.type.tz is None else pc.binary_join_element_wise(utc, "Z", "")
    values: list[Any] = column.to_pylist()
    if types.is_integer(field.type):
        return f"{{{str(values)[1:-1]}}}"
    if field.metadata == UUID_FIELD:
        return [None if value is None else UUID(bytes=value) for value in values]
    return values


def _within(column: pa.Array, number: pa.DataType, limits: tuple[int, int]) -> pa.Array:
    numbers = column.cast(number)
    low, high = (pa.scalar(limit, number) for limit in limits)
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    within: pa.Array = pc.if_else(fits, column, pa.scalar(None, column.type))
    return within
