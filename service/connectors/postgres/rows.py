"""Keys and rows of a lookup query as Arrow: arguments, records, and one binary array per column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension.dimension_events import FetchedRows, UnfitRows
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import UNKNOWN_SERVER, ServerEpoch, ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import UUID_FIELD
from lookup_core.row_bytes import LISTED_ROW_BYTES, largest_column, row_bytes
from lookup_core.type_texts import type_text
from service.connectors.postgres.column_types import ColumnReading
from service.connectors.postgres.column_values import (
    DAYS,
    ELEMENTS,
    MICROSECONDS,
    BinaryArray,
    DecodedColumn,
    checked_text,
    element_oid,
)
from service.connectors.postgres.queries import (
    COLUMN,
    COMPOSITE_FACTOR,
    DEFERRED,
    TOO_LARGE,
    with_keys,
)
from service.connectors.postgres.table import PostgresTable

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
    has_snapshot: bool = False,
) -> FetchedRows:
    """The rows of records: ordinal, columns, perhaps the snapshot.

    Raises BackendError as `checked_rows` and `as_described`.
    """
    columns = list(zip(*records, strict=False))  # all records have the same length
    snapshot, server = None, UNKNOWN_SERVER
    if has_snapshot:
        # The record with the snapshot is the first as a rule; with a parallel plan, any.
        *columns, texts = columns
        at = next(position for position, text in enumerate(texts) if text is not None)
        columns = [column[:at] + column[at + 1 :] for column in columns]
        snapshot, server = parsed_snapshot(texts[at])
    if not any(columns):
        return replace(no_rows(table), snapshot=snapshot, server=server)
    ordinals, *values = columns
    if len(values) != len(table.columns):
        values = []  # refused by `checked_rows`
    read = [_column(*each) for each in zip(values, table.columns, strict=False)]
    fetched = checked_rows(np.array(ordinals, np.int64), read, table, key_count=key_count)
    return replace(fetched, snapshot=snapshot, server=server)


def _column(values: Sequence[Any], described: tuple[str, ColumnReading]) -> DecodedColumn:
    name, reading = described
    with as_described(name, reading):
        # One value decides: a column of a result has one type. Arrow would accept 1.5 as 1.
        first = next((value for value in values if value is not None), None)
        if first is not None and not _is_of(reading.sent, first):
            raise TypeError
        array = pa.array(values, reading.sent)
        return DecodedColumn(array) if reading.decode is None else reading.decode(array)


def _is_of(kind: pa.DataType, value: object) -> bool:
    if types.is_timestamp(kind):
        return type(value) is datetime and (value.tzinfo is None) == (kind.tz is None)
    return any(is_kind(kind) and type(value) is python for is_kind, python in _PYTHON_TYPES)


def checked_rows(
    ordinals: npt.NDArray[np.int64],
    columns: Sequence[DecodedColumn],
    table: PostgresTable,
    *,
    key_count: int,
) -> FetchedRows:
    """Rows with ordinals from 1 to `key_count`, at least one; unfit rows are left out.

    The high half of an ordinal has its mark, as in `queries`. Raises BackendError `internal` for
    ordinals or columns that do not belong to the query.
    """
    largest, ordinals = np.divmod(ordinals, 1 << COLUMN)
    marks, ordinals = np.divmod(ordinals, 1 << 32)
    fits = ordinals.min() >= 1 and ordinals.max() <= key_count
    if not fits or [len(column.values) for column in columns] != [len(ordinals)] * len(
        table.columns
    ):
        detail = f"the server returned {len(ordinals)} rows that fit no query for {key_count} keys"
        raise BackendError(ErrorCode.INTERNAL, detail)
    arrays = [column.values for column in columns]
    rows = pa.record_batch(arrays, schema=table.schema.columns)
    positions = (ordinals - 1).astype(np.int32)
    names = [_counted(*table.columns[number - 1]) for number in np.unique(largest) if number]
    fetched = _within_limits(FetchedRows(positions, rows), marks, table, largest=names)
    fits_types = np.ones(len(ordinals), np.bool_)
    for column in columns:
        fits_types[column.unfit] = False
    is_kept = fits_types & (marks == 0)
    if is_kept.all():
        return fetched
    rows = rows.filter(pa.array(is_kept))
    fetched = replace(fetched, ordinals=positions[is_kept], rows=rows)
    if fits_types.all():
        return fetched
    detail, of_unfit = "; ".join(_faults(columns, table)), np.unique(positions[~fits_types])
    unfit = UnfitRows(ErrorCode.VALUE_REJECTED, of_unfit, detail)
    return replace(fetched, unfit=[*fetched.unfit, unfit])


def _within_limits(
    sent: FetchedRows,
    marks: npt.NDArray[np.int64],
    table: PostgresTable,
    *,
    largest: Sequence[str],
) -> FetchedRows:
    """The rows as they were sent, with the keys that a limit of bytes concerns."""
    ordinals, has_several = sent.ordinals, table.has_several_rows
    around_bytes = LISTED_ROW_BYTES if has_several else 0
    sent_bytes = sent.rows.nbytes + around_bytes * len(ordinals)
    if not marks.any() and not (has_several and sent_bytes > table.row_bytes):
        return sent
    large, cut = ordinals[marks == TOO_LARGE], ordinals[marks == DEFERRED]
    unfit = []
    if has_several:
        together = np.bincount(ordinals, weights=row_bytes(sent.rows) + around_bytes)
        # The first key of an answer is cut only if its own rows exceed the answer.
        is_first = cut == ordinals[0]
        large = np.concatenate((large, np.flatnonzero(together > table.row_bytes), cut[is_first]))
    elif (twice := np.intersect1d(cut, ordinals[marks == 0])).size:
        unfit = [UnfitRows(ErrorCode.AMBIGUOUS, twice, ErrorCode.AMBIGUOUS.explanation)]
    if (large := np.unique(large).astype(np.int32)).size:
        names = largest or [largest_column(sent.rows)]
        unfit.append(UnfitRows.too_large(large, row_bytes=table.row_bytes, columns=names))
    deferred = np.setdiff1d(cut, [key for each in unfit for key in each.ordinals])
    return replace(sent, unfit=unfit, deferred=deferred.astype(np.int32))


def _counted(name: str, reading: ColumnReading) -> str:
    is_nested = types.is_nested(reading.type)
    return f"{name} (its bytes count {COMPOSITE_FACTOR} times)" if is_nested else name


def _faults(columns: Sequence[DecodedColumn], table: PostgresTable) -> list[str]:
    """The columns with values that do not fit, and the remedy."""
    return [
        f"column {name}: a value does not fit {type_text(reading.type)};"
        f" types: {{{name}: string}} reads the column as text"
        for column, (name, reading) in zip(columns, table.columns, strict=True)
        if column.unfit.size
    ]


def no_rows(table: PostgresTable) -> FetchedRows:
    """The result if no key has a row."""
    none = pa.RecordBatch.from_pylist([], table.schema.columns)
    return FetchedRows(np.empty(0, np.int32), none)


@contextmanager
def as_described(name: str, reading: ColumnReading) -> Iterator[None]:
    """Raise BackendError `schema_changed` for values that do not fit the column's type."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:  # ArrowInvalid is a ValueError
        detail = f"column {name} is no longer {reading.type}"
        raise BackendError(ErrorCode.SCHEMA_CHANGED, detail) from error


def parsed_snapshot(text: str) -> tuple[TableSnapshot, ServerEpoch]:
    """The snapshot of a statement and its server, from the text that its query selects."""
    state, started_at, snapshot = text.split(" ")
    is_standby, start = state == "t", int(started_at) if started_at else None
    server = ServerIdentity(is_standby=is_standby, started_at=start)
    return TableSnapshot.parse(snapshot, is_of_standby=is_standby), ServerEpoch(0, server)


def rows_of_blocks(
    blocks: Sequence[Any], table: PostgresTable, *, key_count: int, has_snapshot: bool = False
) -> FetchedRows:
    """The rows of blocks: ordinals, columns, perhaps the snapshot.

    Raises BackendError as `checked_rows` and `as_described`; `value_rejected` for text that is
    not UTF-8.
    """
    snapshot, server = None, UNKNOWN_SERVER
    if has_snapshot:
        *blocks, text = blocks
        snapshot, server = parsed_snapshot(text)
    first, *others = blocks
    if first is None:  # aggregates of no rows
        return replace(no_rows(table), snapshot=snapshot, server=server)
    ordinals = BinaryArray.read(first, np.int64).values
    columns = columns_of_blocks(others, table.columns)
    fetched = checked_rows(ordinals, columns, table, key_count=key_count)
    return replace(fetched, snapshot=snapshot, server=server)


def columns_of_blocks(
    blocks: Sequence[Any], columns: Sequence[tuple[str, ColumnReading]]
) -> list[DecodedColumn]:
    """The columns of at least one row; raises as `rows_of_blocks`."""
    readings = zip(blocks, columns, strict=True)
    return [_column_of_block(block, name, reading) for block, (name, reading) in readings]


def _column_of_block(block: bytes, name: str, reading: ColumnReading) -> DecodedColumn:
    with as_described(name, reading):
        if reading.to_bytes is None:
            return DecodedColumn(_of_one_width(block, reading.type))
        values = _of_any_length(block)
        if not types.is_binary(reading.sent):
            values = checked_text(values).cast(reading.sent)
        return DecodedColumn(values) if reading.decode is None else reading.decode(values)


def _of_one_width(block: bytes, kind: pa.DataType) -> pa.Array:
    element = ELEMENTS.get(element_oid(block))
    are_integers = types.is_integer(kind) and element is not None and types.is_integer(element.type)
    if element is None or not (element.type == kind or are_integers):  # the cast checks ranges
        raise pa.ArrowInvalid("the elements have another type")
    array = BinaryArray.read(block, element.numbers)
    values = array.values + element.epoch if element.epoch else array.values
    return pa.array(values, mask=array.is_null).view(element.type).cast(kind)


def _of_any_length(block: bytes) -> pa.BinaryArray:
    """Values of variable length: an array of lengths, and all values without gaps."""
    lengths = BinaryArray.read(block, np.int32)
    size = len(lengths.values)
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(lengths.values, out=offsets[1:])
    is_valid = None if lengths.is_null is None else pa.array(~lengths.is_null).buffers()[1]
    content = pa.py_buffer(block).slice(lengths.end)
    return pa.Array.from_buffers(pa.binary(), size, [is_valid, pa.py_buffer(offsets), content])


def surplus_ranges(blocks: Sequence[bytes | None]) -> int:
    """The number of ranges that have the rows of a page which are too many for one; 0: it fits."""
    if blocks[0] is None:
        return 0
    marks = _marks(blocks[0])
    surplus = int((marks == DEFERRED).sum())
    # Twice as many as rows of the same size need.
    return surplus and 2 * -(-len(marks) // max(len(marks) - surplus, 1))


def _marks(ordinals: bytes) -> npt.NDArray[np.int64]:
    return BinaryArray.read(ordinals, np.int64).values >> 32 & 3


def postgres_snapshot_rows(blocks: Sequence[bytes | None], table: PostgresTable) -> RowChanges:
    """The rows of a page, without keys beyond the years 1 to 9999: no lookup can have them.

    A row that is too large, or with a value that does not fit, is reported without its values.
    Raises BackendError `schema_changed` if the rows do not fit the described table.
    """
    ordinals, *sent = blocks
    schema = table.schema
    if ordinals is None:  # aggregates of no rows
        none = [pa.RecordBatch.from_pylist([], each) for each in (schema.key, schema.columns)]
        return RowChanges.loaded(*none)
    read = columns_of_blocks(sent, with_keys(table).columns)
    keys = [column.values.cast(field.type) for column, field in zip(read, schema.key, strict=False)]
    has_row = _marks(ordinals) == 0
    for column in read:
        has_row[column.unfit] = False
    return RowChanges.loaded(
        pa.record_batch(keys, schema=schema.key),
        pa.record_batch([column.values for column in read[len(keys) :]], schema=schema.columns),
        has_row,
    )


def key_order(keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The positions of the keys in ascending order, about that of an index and its pages."""
    if keys.num_columns == 1 and types.is_integer(keys.schema.field(0).type):  # never null
        return np.argsort(keys.column(0).to_numpy()).astype(np.int32)
    by_all = [(name, "ascending") for name in keys.schema.names]
    return pc.sort_indices(keys, sort_keys=by_all).to_numpy().astype(np.int32)


def key_arguments(keys: pa.RecordBatch, described: pa.Schema) -> list[Any]:
    """The query argument of each key column: a list, or an array literal for integers.

    A time outside the years 1 to 9999 becomes NULL, which matches no row. Integers are never null.
    """
    return [_argument(column, field) for column, field in zip(keys.columns, described, strict=True)]


def _argument(column: pa.Array, field: pa.Field) -> list[Any] | str:
    if types.is_date32(field.type):
        column = _within(column, pa.int32(), DAYS).cast(pa.utf8())
    if types.is_timestamp(field.type):
        utc = _within(column, pa.int64(), MICROSECONDS).cast(pa.timestamp("us")).cast(pa.utf8())
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
