"""Keys as asyncpg sends them, and records as Arrow columns: the border between two type systems.

Columns at a time; nothing here waits or knows the network.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.key_casts import UUID_FIELD
from service.backends.interface import FetchedRows

# Years 1 to 9999, like the columns: beyond, ISO 8601 needs signs and more digits.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)

_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (types.is_string, str),
    (types.is_integer, int),
    (types.is_floating, float),
    (types.is_boolean, bool),
    (types.is_decimal, Decimal),
    (types.is_date32, date),
    (types.is_binary, bytes),
)


def key_arguments(keys: pa.RecordBatch, described: pa.Schema) -> list[list[Any]]:
    """One list per key column; a time that cannot be written becomes NULL: no row."""
    return [_argument(column, field) for column, field in zip(keys.columns, described, strict=True)]


def fetched_rows(
    records: Sequence[Iterable[Any]], columns: pa.Schema, *, key_count: int
) -> FetchedRows:
    """The records of a lookup query (ordinal, then the columns) for so many keys.

    Raises BackendError: `schema_changed` when a column holds another type than was described,
    `internal` when the server answers what was not asked.
    """
    if not records:
        empty = [pa.array([], field.type) for field in columns]
        return FetchedRows(np.empty(0, np.int32), pa.record_batch(empty, schema=columns))
    ordinals, *values = zip(*records, strict=False)  # the server made them alike
    positions = np.fromiter(ordinals, np.int64, len(ordinals)) - 1
    if positions.min() < 0 or positions.max() >= key_count or len(values) != len(columns):
        detail = f"the server answered {len(records)} rows that fit no query for {key_count} keys"
        raise BackendError(ErrorCode.INTERNAL, detail)
    arrays = [_column(part, field) for part, field in zip(values, columns, strict=True)]
    return FetchedRows(positions.astype(np.int32), pa.record_batch(arrays, schema=columns))


def _argument(column: pa.Array, field: pa.Field) -> list[Any]:
    if types.is_date32(field.type):
        column = _within(column, pa.int32(), _DAYS).cast(pa.utf8())
    if types.is_timestamp(field.type):
        utc = _within(column, pa.int64(), _MICROSECONDS).cast(pa.timestamp("us")).cast(pa.utf8())
        column = utc if field.type.tz is None else pc.binary_join_element_wise(utc, "Z", "")
    values: list[Any] = column.to_pylist()
    if field.metadata == UUID_FIELD:
        return [None if value is None else UUID(bytes=value) for value in values]
    return values


def _within(column: pa.Array, number: pa.DataType, limits: tuple[int, int]) -> pa.Array:
    numbers = column.cast(number)
    low, high = (pa.scalar(limit, number) for limit in limits)
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    within: pa.Array = pc.if_else(fits, column, pa.scalar(None, column.type))
    return within


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    first = next((value for value in values if value is not None), None)
    if first is not None and not _is_of(field.type, first):
        raise _changed(field)
    try:
        array: pa.Array = pa.array(values, field.type)
    except (TypeError, ValueError, OverflowError) as error:
        raise _changed(field) from error
    return array


def _changed(field: pa.Field) -> BackendError:
    detail = f"column {field.name} no longer holds {field.type}; describe the table anew"
    return BackendError(ErrorCode.SCHEMA_CHANGED, detail)


def _is_of(kind: pa.DataType, value: object) -> bool:
    """Whether a value has the Python type of the column; Arrow itself would take 1.5 for an int.

    One value is enough: all of a result's column have the same type.
    """
    if types.is_timestamp(kind):
        return type(value) is datetime and (value.tzinfo is None) == (kind.tz is None)
    return any(is_kind(kind) and type(value) is python for is_kind, python in _PYTHON_TYPES)
