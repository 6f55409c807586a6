"""JSON to Arrow conversion: the documents of messages, and the values of one column."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import JsonLoads
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json

Positions = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]

UNUSABLE: Final = object()  # marks a missing or ambiguous value

_NO_POSITIONS = np.zeros(0, np.intp)
_NO_COLUMNS = pa.schema([])
_NOT_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
_WHOLE_FLOATS = 2**53  # up to here doubles hold all whole numbers


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """n values of a column; null for JSON nulls and unusable values."""

    values: pa.Array  # [n]
    unusable: Positions  # of values that do not have the type


def json_column(values: Sequence[object], field: pa.Field) -> JsonColumn:
    """Convert values to the field's exact type; members that a struct lacks are not considered."""
    if types.is_list(field.type):
        return _lists(values, field.type)
    if types.is_struct(field.type):
        return _structs(values, field.type)
    if {*map(type, values)} <= {_plain_type(field.type), NoneType}:
        try:
            return JsonColumn(pa.array(values, field.type), _NO_POSITIONS)
        except (OverflowError, pa.ArrowInvalid, UnicodeError):
            pass  # at least one value is out of range: convert them one by one
    if types.is_floating(field.type):
        return _floats(values, field.type)
    try:
        typed = typed_keys_from_json(values, DimensionSchema(pa.schema([field]), _NO_COLUMNS))
    except InvalidRequest:  # JSON cannot state values of the type
        return JsonColumn(pa.nulls(len(values), field.type), np.arange(len(values)))
    return JsonColumn(typed.columns.column(0), np.array([*typed.faults], np.intp))


def _lists(values: Sequence[object], kind: pa.DataType) -> JsonColumn:
    lists = [value if isinstance(value, list) else None for value in values]
    lengths = np.array([len(items or ()) for items in lists], np.int32)
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    items = json_column([item for items in lists for item in items or ()], kind.field(0))
    is_wrong = _is_other(values, list)
    is_wrong[np.repeat(np.arange(len(values)), lengths)[items.unusable]] = True
    is_null = pa.array(is_wrong | np.array([items is None for items in lists], np.bool_))
    found = pa.ListArray.from_arrays(offsets, items.values, mask=is_null)
    return JsonColumn(found, np.flatnonzero(is_wrong))


def _structs(values: Sequence[object], kind: pa.DataType) -> JsonColumn:
    documents = [value if isinstance(value, dict) else {} for value in values]
    fields = [kind.field(at) for at in range(kind.num_fields)]
    columns = [
        json_column([document.get(field.name) for document in documents], field) for field in fields
    ]
    is_wrong = _is_other(values, dict)
    for column in columns:
        is_wrong[column.unusable] = True
    is_null = pa.array(is_wrong | np.array([value is None for value in values], np.bool_))
    arrays = [column.values for column in columns]
    found = pa.StructArray.from_arrays(arrays, fields=fields, mask=is_null)
    return JsonColumn(found, np.flatnonzero(is_wrong))


def _is_other(values: Sequence[object], kind: type) -> npt.NDArray[np.bool_]:
    """Which values are neither of the type nor None."""
    return np.array([not isinstance(value, (kind, NoneType)) for value in values], np.bool_)


def _plain_type(kind: pa.DataType) -> type:
    """The Python type whose values Arrow converts exactly; NoneType if there is none."""
    if types.is_integer(kind):
        return int
    if types.is_string(kind):
        return str
    return bool if types.is_boolean(kind) else NoneType


def _floats(values: Sequence[object], kind: pa.DataType) -> JsonColumn:
    numbers = [_float(value) for value in values]
    is_null = np.array([number is None for number in numbers], np.bool_)
    doubles = np.array([0.0 if number is None else number for number in numbers], np.float64)
    with np.errstate(over="ignore"):
        exact = doubles.astype(kind.to_pandas_dtype())
        is_wrong = _is_inexact(doubles, exact)
    is_wrong |= is_null & np.array([value is not None for value in values], np.bool_)
    return JsonColumn(pa.array(exact, mask=is_null | is_wrong), np.flatnonzero(is_wrong))


def _float(value: object) -> float | None:
    if isinstance(value, float | Decimal):
        return float(value)
    if type(value) is int and abs(value) <= _WHOLE_FLOATS:
        return float(value)
    return _NOT_FINITE.get(value) if isinstance(value, str) else None


def _is_inexact(doubles: Floats, exact: Floats) -> npt.NDArray[np.bool_]:
    """Where the shorter float may not be the nearest one to the original text.

    The text of a double halfway between two shorter floats may lie on either side.
    """
    back = exact.astype(np.float64)
    outwards = np.where(doubles > back, np.inf, -np.inf).astype(exact.dtype)
    other = np.nextafter(exact, outwards).astype(np.float64)
    is_halfway = (doubles != back) & ((back + other) / 2 == doubles)
    return is_halfway | (np.isfinite(doubles) & ~np.isfinite(exact))


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """Parses JSON documents up to a size."""

    loads: JsonLoads
    max_bytes: int

    def read(self, content: bytes | None) -> object:
        """Parse a document, None for none; raises ValueError with a reason for the log."""
        if content is None:
            return None
        if len(content) > self.max_bytes:
            raise ValueError(f"{len(content)} bytes exceed the limit of {self.max_bytes}")
        try:
            return self.loads(content)
        except ValueError as error:
            raise ValueError("not valid JSON") from error
