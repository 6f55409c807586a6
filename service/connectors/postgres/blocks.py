"""Rows of a large batch: PostgreSQL's binary arrays, one per column, to Arrow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.freshness.server_identity import UNKNOWN_SERVER
from service.connectors.postgres.column_values import ELEMENTS, DecodedColumn, checked_text
from service.connectors.postgres.rows import (
    as_described,
    checked_rows,
    no_rows,
    parsed_snapshot,
)
from service.connectors.postgres.table import ColumnReading, PostgresTable

Numbers: TypeAlias = npt.NDArray[Any]  # of a type that is known at run time

# The server's `array_send`, in network byte order. The elements follow: each is a length, -1 for
# NULL, and its bytes.
_FIELDS = ("dimensions", "has_nulls", "element_oid", "size", "first_subscript")
_HEADER = np.dtype([(name, ">u4") for name in _FIELDS])
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """The elements of one array of values of one width."""

    values: Numbers  # [size] in the machine's byte order; zero where null
    is_null: npt.NDArray[np.bool_] | None  # [size] None without nulls
    end: int  # offset of the array's end in the block

    @classmethod
    def read(cls, block: bytes, kind: npt.DTypeLike) -> "BinaryArray":
        """The array at the start of the block; its elements have the width of `kind`."""
        element = np.dtype(kind)
        header = np.frombuffer(block, _HEADER, count=1)[0]
        size = int(header["size"])
        if header["has_nulls"]:
            values, is_null = _with_nulls(block, element, size)
            present = size - int(is_null.sum())
            end = _HEADER.itemsize + size * _LENGTH_BYTES + present * element.itemsize
            return cls(values, is_null, end)
        pairs = np.dtype([("length", ">i4"), ("value", element.newbyteorder(">"))])
        found = np.frombuffer(block, pairs, count=size, offset=_HEADER.itemsize)
        end = _HEADER.itemsize + size * pairs.itemsize
        return cls(found["value"].astype(element), None, end)


def element_oid(block: bytes) -> int:
    """The oid of the element type of the block's array."""
    return int(np.frombuffer(block, _HEADER, count=1)["element_oid"][0])


def _with_nulls(
    block: bytes, element: np.dtype[Any], size: int
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    bytes_each = _LENGTH_BYTES + element.itemsize
    rest = block[_HEADER.itemsize : _HEADER.itemsize + size * bytes_each]
    unit = math.gcd(_LENGTH_BYTES, element.itemsize)
    lengths = _at_each_unit(rest, np.dtype(">i4"), unit)
    steps = np.where(lengths < 0, _LENGTH_BYTES, bytes_each) // unit
    starts = _starts(steps, size)
    is_null = lengths[starts] < 0
    values = np.zeros(size, element)
    at = _at_each_unit(rest[_LENGTH_BYTES:], element.newbyteorder(">"), unit)
    values[~is_null] = at[starts[~is_null]]
    return values, is_null


def _at_each_unit(block: bytes, kind: np.dtype[Any], unit: int) -> Numbers:
    """The value at each multiple of `unit` bytes; values overlap."""
    count = max(0, (len(block) - kind.itemsize) // unit + 1)
    return np.ndarray((count,), kind, block, strides=(unit,))


def _starts(steps: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The start of each of `size` elements; an element that starts at i ends at i + steps[i].

    By pointer jumping (Wyllie 1979): each round doubles the length of the jumps.
    """
    jumps = np.minimum(np.arange(len(steps)) + steps, len(steps) - 1)
    starts = np.zeros(1, np.int64)
    while len(starts) < size:
        starts = np.concatenate((starts, jumps[starts]))
        jumps = jumps[jumps]
    return starts[:size]


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
    blocks: Sequence[bytes | None], columns: Sequence[tuple[str, ColumnReading]]
) -> list[DecodedColumn]:
    """The columns of at least one row; raises as `rows_of_blocks`."""
    readings = zip(blocks, columns, strict=True)
    return [_column(block, name, reading) for block, (name, reading) in readings]


def _column(block: bytes | None, name: str, reading: ColumnReading) -> DecodedColumn:
    assert block is not None  # there are rows
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
