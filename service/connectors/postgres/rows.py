"""Rows of a small batch: asyncpg records to Arrow, checked, with the query's snapshot."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.table import ColumnReading, PostgresTable


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


Column = tuple[Any, ...]


def visible_snapshot(text: str) -> TableSnapshot:
    """What a statement saw, as the server writes it: `t` on a standby, else `f`; its snapshot."""
    is_standby, snapshot = text.split(" ")
    return TableSnapshot.parse(snapshot, is_of_standby=is_standby == "t")


def split_seen(columns: Iterable[Column]) -> tuple[list[Column], TableSnapshot]:
    """The columns without the last one, and without the row for which that one tells what was seen.

    As a rule it is the first row; where parts of a query run side by side it is any.
    """
    *columns, seen = columns
    at = next(place for place, text in enumerate(seen) if text is not None)
    return [column[:at] + column[at + 1 :] for column in columns], visible_snapshot(seen[at])


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
