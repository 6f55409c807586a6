"""JSON to Arrow conversion: the documents of messages, and the values of one column."""

import json
import math
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
_INT64_DIGITS = 19
# Converters with a schema registry write this byte and the schema's number before a document, or
# before another format.
_REGISTRY, _FRAME_BYTES = b"\0", 5
NO_JSON = "not valid JSON"
_OF_REGISTRY = (
    f"{NO_JSON}, but of a schema registry; set value.converter="
    "org.apache.kafka.connect.json.JsonConverter in the connector"
)


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """n values of a column; null for JSON nulls and unusable values."""

    values: pa.Array  # [n]
    unusable: Positions  # where values do not have the type


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
    if types.is_integer(field.type):
        values = [_whole(value) for value in values]
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


def _whole(value: object) -> object:
    """An integer that is written as a decimal, such as `1e2` or `100.0`, as an integer."""
    if not isinstance(value, Decimal) or value.adjusted() >= _INT64_DIGITS:
        return value
    return int(value) if value == value.to_integral_value() else value


def _floats(values: Sequence[object], kind: pa.DataType) -> JsonColumn:
    numbers = [_float(value) for value in values]
    is_null = np.array([number is None for number in numbers], np.bool_)
    doubles = np.array([0.0 if number is None else number for number in numbers], np.float64)
    is_wrong = is_null & np.array([value is not None for value in values], np.bool_)
    for at in np.flatnonzero(_is_halfway(doubles, kind.to_pandas_dtype())).tolist():
        if isinstance(value := values[at], int | Decimal):
            doubles[at] = _towards(value, doubles.item(at))
        else:
            is_wrong[at] = True  # the digits that decide were lost by the parser
    with np.errstate(over="ignore", under="ignore"):
        nearest = doubles.astype(kind.to_pandas_dtype())
    is_wrong |= np.isfinite(doubles) & ~np.isfinite(nearest)
    is_wrong |= (doubles != 0) & (nearest == 0)
    return JsonColumn(pa.array(nearest, mask=is_null | is_wrong), np.flatnonzero(is_wrong))


def _float(value: object) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, Decimal) or type(value) is int:
        return _nearest(value)
    return _NOT_FINITE.get(value) if isinstance(value, str) else None


def _nearest(number: int | Decimal) -> float | None:
    """The nearest double as of PostgreSQL's cast, which refuses overflow and underflow to zero."""
    try:
        nearest = float(number)
    except OverflowError:
        return None
    return None if math.isinf(nearest) or (number != 0 and nearest == 0) else nearest


def _is_halfway(doubles: Floats, kind: type[np.floating]) -> npt.NDArray[np.bool_]:
    """Where a double lies halfway between two shorter floats: its text may lie on either side."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        shorter = doubles.astype(kind)
        back = shorter.astype(np.float64)
        outwards = np.where(doubles > back, np.inf, -np.inf).astype(kind)
        other = np.nextafter(shorter, outwards).astype(np.float64)
        is_halfway: npt.NDArray[np.bool_] = (doubles != back) & ((back + other) / 2 == doubles)
    return is_halfway


def _towards(number: int | Decimal, nearest: float) -> float:
    """The next double on the number's side; the nearest one if it is the number."""
    if number == nearest:
        return nearest
    return math.nextafter(nearest, math.inf if number > nearest else -math.inf)


def exact_json(text: str | bytes) -> object:
    """Parse a document with all digits of its numbers; raises ValueError.

    Numbers with a fraction or an exponent are decimals. Those beyond all decimals are UNUSABLE.
    """
    try:
        return _parsed(text)
    except RecursionError as error:
        raise ValueError("too many levels") from error


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError):  # maybe an integer of more digits than Python converts
        return json.loads(text, parse_float=_decimal, parse_int=_decimal)


def _decimal(digits: str) -> object:
    try:
        return Decimal(digits)
    except ArithmeticError:
        return UNUSABLE


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """Parses JSON documents up to a size."""

    loads: JsonLoads
    max_bytes: int

    def read(self, content: bytes | None) -> object:
        """Parse a document, None for none; raises ValueError with a reason for the log."""
        if content is None:
            return None
        self.check_size(content)
        if content.startswith(_REGISTRY) and content.startswith(b"{", _FRAME_BYTES):
            content = content[_FRAME_BYTES:]
        try:
            return self.loads(content)
        except ValueError:
            return self._read_exactly(content)

    def check_size(self, content: bytes) -> None:
        """Raise ValueError if the document is too large."""
        if len(content) > self.max_bytes:
            raise ValueError(f"{len(content)} bytes exceed the limit of {self.max_bytes}")

    @staticmethod
    def _read_exactly(content: bytes) -> object:
        # The other parser refuses a document for one number beyond the doubles.
        try:
            return exact_json(content.decode())
        except ValueError as error:
            is_of_registry = content.startswith(_REGISTRY)
            raise ValueError(_OF_REGISTRY if is_of_registry else NO_JSON) from error
