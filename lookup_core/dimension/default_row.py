"""Default row: configured values in the dimension's exact types, for missing keys.

Converts values only; the local resolver serves the row.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, nearest_name
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.type_texts import type_text

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,39}")  # in an environment variable
_EXACT_DIGITS = 15  # decimal digits that a float preserves
_MAX_ERROR = 1e-6  # relative; a larger one is no rounding, but an overflow or underflow
# (test of the type, how its values are written)
_REMEDIES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (types.is_integer, "a whole number in its range"),
    (types.is_floating, "a number in its range"),
    (types.is_decimal, "a number with no more digits and decimals, in quotes"),
    (types.is_boolean, "true or false"),
    (types.is_string, "a text in quotes"),
    (types.is_binary, "base64 in quotes"),
    (types.is_date32, "a date like 2024-05-31"),
    (lambda kind: types.is_timestamp(kind) and kind.tz is None, "a time like 2024-05-31T12:00:00"),
    (types.is_timestamp, "a time with its zone, like 2024-05-31T12:00:00Z"),
    (types.is_list, "a list of values of its type"),
    (types.is_struct, "a mapping of its fields"),
)


def default_row(values: Mapping[str, object], columns: pa.Schema) -> pa.RecordBatch:
    """One row of these columns; columns without a value are null.

    Values have the form of keys in JSON; numbers may be texts, as in environment variables. Raises
    BackendError (`table_unavailable`) for an unknown column, and for a value that its type cannot
    hold exactly.
    """
    for name in values:
        if name not in columns.names:
            raise _unfit(f"no column {name}{nearest_name(name, columns.names)}")
    arrays = [_array(field, values.get(field.name)) for field in columns]
    return pa.record_batch(arrays, schema=columns)


def _array(field: pa.Field, value: object) -> pa.Array:
    try:
        return pa.array([_exact(field.type, value)], field.type)
    except (TypeError, ValueError, OverflowError, InvalidRequest, pa.ArrowException) as error:
        remedies = (f"write {words}" for fits, words in _REMEDIES if fits(field.type))
        remedy = next(remedies, "leave it out")
        # Without the value: it may be a misplaced secret, or very long.
        raise _unfit(
            f"column {field.name} is {type_text(field.type)}, which cannot hold the value; {remedy}"
        ) from error


def _exact(kind: pa.DataType, value: object) -> object:
    """The value for Arrow, which alone would accept 5 as a date, or cut off a time."""
    if value is None:
        return None
    if types.is_list(kind):
        if not isinstance(value, list):
            raise TypeError
        return [_exact(kind.value_type, item) for item in value]
    if types.is_struct(kind):
        fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            raise TypeError
        return {name: _exact(fields[name], item) for name, item in value.items()}
    if types.is_floating(kind):
        return _exact_float(kind, value)
    keys = typed_keys_from_json(
        [_as_json(kind, value)], DimensionSchema(pa.schema([("value", kind)]), pa.schema([]))
    )
    if keys.faults:
        raise ValueError
    return keys.columns.column(0)[0].as_py()


def _exact_float(kind: pa.DataType, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    number = float(value)
    held = pa.scalar(value if isinstance(value, int) else number, kind).as_py()
    if not math.isnan(number) and not math.isclose(held, number, rel_tol=_MAX_ERROR):
        raise ValueError
    return held


def _as_json(kind: pa.DataType, value: object) -> object:
    """The value in its JSON form: YAML and the environment have more forms."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes) and types.is_binary(kind):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and types.is_decimal(kind):
        return _as_written(value)
    if types.is_integer(kind) and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value


def _as_written(value: float) -> str:
    text = repr(value)
    digits = Decimal(text).normalize().as_tuple().digits
    if abs(value) >= 10**_EXACT_DIGITS or len(digits) > _EXACT_DIGITS:
        raise ValueError
    return text


def _unfit(reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"default: {reason}", is_permanent=True)
