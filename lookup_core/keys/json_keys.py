"""JSON values as keys of the dimension's exact types; `typed_keys` casts columns.

Values are not coerced: `1.5`, `true` and `"1"` are not integers. A value of another type is a fault
of its key only.
"""

import base64
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import (
    NO_BLANKS_FIELD,
    TEXT_FIELDS,
    UUID_FIELD,
    UUID_PATTERN,
    TypedKeys,
    integer_range,
)

# The parsers of Python also accept spaces, underscores and other digits.
_UUID = re.compile(UUID_PATTERN)
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_FINER_THAN_MICROSECONDS = re.compile(r"[.,][0-9]{7}")  # would be truncated silently


class _NotOfType(ValueError):
    """Internal: becomes the fault `type` of one key."""


_Parse = Callable[[Any, pa.Field], object]


def typed_keys_from_json(values: Sequence[Any], schema: DimensionSchema) -> TypedKeys:
    """The keys of a request body: one value for each, or a list of values for a composite key.

    Dates and timestamps are ISO 8601 strings, uuids strings, decimals strings or integers, bytes
    base64. Raises InvalidRequest (`key_type`) if JSON has no exact form of a key type.
    """
    integers = _plain_integers(values, schema.key)
    if integers is not None:
        return TypedKeys(integers, np.zeros(0, np.int32), {})
    fields = list(schema.key)
    rows, malformed = _rows(values, len(fields))
    faults: dict[int, ErrorCode] = {}
    columns = [
        _column([row[index] for row in rows], field, faults) for index, field in enumerate(fields)
    ]
    nulls = [at for at, row in enumerate(rows) if None in row and at not in malformed]
    for position in nulls:
        faults.pop(position, None)  # a key with a NULL part matches no row
    faults.update(dict.fromkeys(malformed, ErrorCode.TYPE))
    key_columns = pa.record_batch(columns, schema=schema.key)
    return TypedKeys(key_columns, np.array(nulls, np.int32), faults)


def _plain_integers(values: Sequence[Any], key: pa.Schema) -> pa.RecordBatch | None:
    # The usual case without faults, in a tenth of the time.
    if len(key) > 1 or not types.is_integer(key.field(0).type) or {*map(type, values)} != {int}:
        return None
    try:
        return pa.record_batch([pa.array(values, key.field(0).type)], schema=key)
    except (OverflowError, pa.ArrowInvalid):  # one of them is out of range
        return None


def _rows(values: Sequence[Any], width: int) -> tuple[list[Sequence[Any]], set[int]]:
    if width == 1:
        return [(value,) for value in values], set()
    rows: list[Sequence[Any]] = []
    malformed = set()
    for position, value in enumerate(values):
        is_key = isinstance(value, list) and len(value) == width
        if not is_key and value is not None:
            malformed.add(position)
        rows.append(value if is_key else (None,) * width)
    return rows, malformed


def _column(values: list[Any], field: pa.Field, faults: dict[int, ErrorCode]) -> pa.Array:
    parse = _parser(field)
    parsed = []
    for position, value in enumerate(values):
        try:
            parsed.append(None if value is None else parse(value, field))
        except UnicodeError:
            parsed.append(None)
            faults.setdefault(position, ErrorCode.INVALID_TEXT)
        except (_NotOfType, ValueError, ArithmeticError):
            parsed.append(None)
            faults.setdefault(position, ErrorCode.TYPE)
    return pa.array(parsed, field.type)


def _parser(field: pa.Field) -> _Parse:
    if field.metadata == UUID_FIELD:
        return _uuid
    for fits, parse in _PARSERS:
        if fits(field.type):
            return parse
    raise InvalidRequest(
        ErrorCode.KEY_TYPE, f"key {field.name!r} is {field.type}, which has no exact form in JSON"
    )


def _integer(value: object, field: pa.Field) -> int:
    if type(value) is not int or value not in integer_range(field.type):
        raise _NotOfType
    return value


def _text(value: object, field: pa.Field) -> str:
    if not isinstance(value, str):
        raise _NotOfType
    value.encode()
    if field.metadata in TEXT_FIELDS and "\0" in value:
        raise UnicodeError(value)
    return value.rstrip(" ") if field.metadata == NO_BLANKS_FIELD else value


def _boolean(value: object, _: pa.Field) -> bool:
    if not isinstance(value, bool):
        raise _NotOfType
    return value


def _uuid(value: object, field: pa.Field) -> bytes:
    text = _text(value, field)
    if not _UUID.fullmatch(text):
        raise _NotOfType
    return UUID(text).bytes


def _date(value: object, field: pa.Field) -> date:
    return date.fromisoformat(_text(value, field))


def _timestamp(value: object, field: pa.Field) -> datetime:
    text = _text(value, field)
    moment = datetime.fromisoformat(text)
    if (moment.tzinfo is None) != (field.type.tz is None) or _FINER_THAN_MICROSECONDS.search(text):
        raise _NotOfType
    if pa.scalar(moment, field.type).as_py() != moment:  # precision or range is lost
        raise _NotOfType
    return moment


def exact_decimal(value: object, field: pa.Field) -> Decimal:
    """The decimal of a text or a number; raises ValueError or ArithmeticError if it is another."""
    text = str(value) if type(value) in {int, Decimal} else _text(value, field)
    if not _DECIMAL.fullmatch(text):
        raise _NotOfType
    # Not Arrow's check: a large exponent (1e-9999999) aborts the process in pyarrow 26.
    exact = Context(prec=field.type.precision, traps=[InvalidOperation, Inexact])
    return Decimal(text).quantize(Decimal((0, (1,), -field.type.scale)), context=exact)


def _bytes(value: object, field: pa.Field) -> bytes:
    return base64.b64decode(_text(value, field), validate=True)


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], _Parse], ...] = (
    (types.is_integer, _integer),
    (types.is_string, _text),
    (types.is_boolean, _boolean),
    (types.is_date32, _date),
    (types.is_timestamp, _timestamp),
    (types.is_decimal, exact_decimal),
    (types.is_binary, _bytes),
)
