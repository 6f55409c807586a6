"""Rows of a large batch, as the server sends them in one block of bytes for each column.

A block is in PostgreSQL's own binary forms, so that no row and no value is a Python object. How the
query asks for blocks stands in `postgres_lookup`; small batches come as `postgres_rows`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import FetchedRows
from service.backends.postgres_arrays import BinaryArray, element_oid
from service.backends.postgres_columns import as_described, checked_rows, no_rows
from service.backends.postgres_seen import seen_snapshot
from service.backends.postgres_table import PostgresTable
from service.backends.postgres_types import ColumnReading

_EPOCH_DAYS = 10_957  # from 1970 to 2000, where PostgreSQL counts from
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000


@dataclass(frozen=True, slots=True)
class _Element:
    """What the values of an array are."""

    type: pa.DataType
    numbers: npt.DTypeLike
    epoch: int = 0


# {number of the type in the catalog of any server: its values}
_ELEMENTS = {
    16: _Element(pa.bool_(), np.bool_),
    20: _Element(pa.int64(), np.int64),
    21: _Element(pa.int16(), np.int16),
    23: _Element(pa.int32(), np.int32),
    700: _Element(pa.float32(), np.float32),
    701: _Element(pa.float64(), np.float64),
    1082: _Element(pa.date32(), np.int32, _EPOCH_DAYS),
    1114: _Element(pa.timestamp("us"), np.int64, _EPOCH_US),
    1184: _Element(pa.timestamp("us", "UTC"), np.int64, _EPOCH_US),
}


def rows_of_blocks(
    blocks: Sequence[Any], table: PostgresTable, *, key_count: int, tells_snapshot: bool = False
) -> FetchedRows:
    """The blocks of a query for so many keys: ordinals, then the columns; see `checked_rows`.

    What the query saw stands behind them, if it tells.
    """
    if not tells_snapshot:
        return _rows(blocks, table, key_count)
    *blocks, seen = blocks
    return replace(_rows(blocks, table, key_count), snapshot=seen_snapshot(seen))


def _rows(blocks: Sequence[bytes | None], table: PostgresTable, key_count: int) -> FetchedRows:
    first, *others = blocks
    if first is None:  # the aggregates of no rows
        return no_rows(table)
    ordinals = BinaryArray.read(first, np.int64).values
    readings = zip(others, table.columns, strict=True)
    columns = [_column(block, name, reading) for block, (name, reading) in readings]
    return checked_rows(ordinals, columns, table, key_count=key_count)


def _column(block: bytes | None, name: str, reading: ColumnReading) -> pa.Array:
    assert block is not None  # there are rows
    with as_described(name, reading):
        if reading.to_bytes is None:
            return _of_one_width(block, reading.type)
        values = _of_any_length(block)
        return values if types.is_binary(reading.type) else _text(values).cast(reading.type)


def _of_one_width(block: bytes, kind: pa.DataType) -> pa.Array:
    element = _ELEMENTS.get(element_oid(block))
    if element is None or not _may_become(element.type, kind):
        raise pa.ArrowInvalid("the elements are of another type")
    array = BinaryArray.read(block, element.numbers)
    values = array.values + element.epoch if element.epoch else array.values
    return pa.array(values, mask=array.is_null).view(element.type).cast(kind)


def _may_become(sent: pa.DataType, kind: pa.DataType) -> bool:
    """Whether it is the type, or an integer of another width, which fits or is refused."""
    return sent == kind or (types.is_integer(sent) and types.is_integer(kind))


def _of_any_length(block: bytes) -> pa.BinaryArray:
    """Values of any length: an array of their lengths, then all of them without a gap."""
    lengths = BinaryArray.read(block, np.int32)
    size = len(lengths.values)
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(lengths.values, out=offsets[1:])
    is_valid = None if lengths.is_null is None else pa.array(~lengths.is_null).buffers()[1]
    content = pa.py_buffer(block).slice(lengths.end)
    return pa.Array.from_buffers(pa.binary(), size, [is_valid, pa.py_buffer(offsets), content])


def _text(values: pa.BinaryArray) -> pa.StringArray:
    text = values.view(pa.utf8())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        detail = "the table holds text that is not UTF-8"
        raise BackendError(ErrorCode.UPSTREAM_REJECTED, detail) from error
    return text
