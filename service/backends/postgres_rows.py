"""Rows of a small batch, as asyncpg's records, on their way to Arrow.

Columns at a time. What large batches come as, which cost less for each row and more for each query,
stands in `postgres_blocks`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from service.backends.interface import FetchedRows
from service.backends.postgres_columns import as_described, checked_rows, no_rows
from service.backends.postgres_seen import Column, split_seen
from service.backends.postgres_table import PostgresTable
from service.backends.postgres_types import ColumnReading

_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (types.is_string, str),
    (types.is_integer, int),
    (types.is_floating, float),
    (types.is_boolean, bool),
    (types.is_decimal, Decimal),
    (types.is_date32, date),
    (types.is_binary, bytes),
)


def rows_of_records(
    records: Sequence[Iterable[Any]],
    table: PostgresTable,
    *,
    key_count: int,
    tells_snapshot: bool = False,
) -> FetchedRows:
    """The records of a query for so many keys: ordinal, then the columns; see `checked_rows`.

    What the query saw stands behind the columns, if it tells.
    """
    by_column = list(zip(*records, strict=False))  # the server made them alike
    snapshot = None
    if tells_snapshot:
        by_column, snapshot = split_seen(by_column)
    fetched = _rows(by_column, table, key_count) if any(by_column) else no_rows(table)
    return replace(fetched, snapshot=snapshot)


def _rows(by_column: Sequence[Column], table: PostgresTable, key_count: int) -> FetchedRows:
    ordinals, *values = by_column
    if len(values) != len(table.columns):
        values = []  # which is told below
    columns = [_column(*each) for each in zip(values, table.columns, strict=False)]
    return checked_rows(np.array(ordinals, np.int64), columns, table, key_count=key_count)


def _column(values: Sequence[Any], described: tuple[str, ColumnReading]) -> pa.Array:
    name, reading = described
    with as_described(name, reading):
        _refuse_others(reading.type, values)
        return pa.array(values, reading.type)


def _refuse_others(kind: pa.DataType, values: Sequence[Any]) -> None:
    """Raise TypeError for values of another type; Arrow itself would take 1.5 for an int.

    One value is enough: all of a result's column have the same type.
    """
    first = next((value for value in values if value is not None), None)
    if first is not None and not _is_of(kind, first):
        raise TypeError


def _is_of(kind: pa.DataType, value: object) -> bool:
    if types.is_timestamp(kind):
        return type(value) is datetime and (value.tzinfo is None) == (kind.tz is None)
    return any(is_kind(kind) and type(value) is python for is_kind, python in _PYTHON_TYPES)
