"""Keys that come as JSON values, brought to the dimension's exact key types.

Nothing is coerced: `1.5`, `true` and `"1"` are not integers. A value that is not of the key's type
is a fault of that key alone. Not for columns: see `key_casts`.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.key_casts import NO_NUL_FIELD, UUID_FIELD
from lookup_core.typed_keys import TypedKeys


class _NotOfType(Exception):
    """Never leaves this module: it becomes the fault `type` of one key."""


_Parse = Callable[[Any, pa.Field], object]


def typed_keys_from_json(values: Sequence[Any], schema: DimensionSchema) -> TypedKeys:
    """The keys of a request body: a value each, or a list of values each for a composite key.

    Dates and timestamps are ISO 8601 texts, uuids texts, decimals texts or integers, bytes base64.
    Raises InvalidRequest (`key_type`) only when the key has a type that JSON cannot name.
    """
    fields = list(schema.key)
    rows, malformed = _rows(values, len(fields))
    faults: dict[int, ErrorCode] = {}
    columns = [
        _column([row[index] for row in rows], field, faults) for index, field in enumerate(fields)
    ]
    nulls = [at for at, row in enumerate(rows) if None in row and at not in malformed]
    for position in nulls:
        faults.pop(position, None)  # a key with a NULL part matches nothing, whatever the rest
    faults.update(dict.fromkeys(malformed, ErrorCode.TYPE))
    key_columns = pa.record_batch(columns, schema=schema.key)
    return TypedKeys(key_columns, np.array(nulls, np.int32), faults)


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
        except (_NotOfType, ValueError, InvalidOperation, OverflowError, pa.ArrowException):
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
        ErrorCode.KEY_TYPE, f"key {field.name!r} is {field.type}, which JSON cannot name exactly"
    )


def _integer(value: object, field: pa.Field) -> int:
    if type(value) is not int:
        raise _NotOfType
    pa.scalar(value, field.type)  # raises where the type cannot hold it
    return value


def _text(value: object, field: pa.Field) -> str:
    if not isinstance(value, str):
        raise _NotOfType
    value.encode()
    if field.metadata == NO_NUL_FIELD and "\0" in value:
        raise UnicodeError(value)
    return value


def _boolean(value: object, _: pa.Field) -> bool:
    if not isinstance(value, bool):
        raise _NotOfType
    return value


def _uuid(value: object, field: pa.Field) -> bytes:
    return UUID(_text(value, field)).bytes


def _date(value: object, field: pa.Field) -> date:
    return date.fromisoformat(_text(value, field))


def _timestamp(value: object, field: pa.Field) -> datetime:
    moment = datetime.fromisoformat(_text(value, field))
    if (moment.tzinfo is None) != (field.type.tz is None):
        raise _NotOfType
    pa.scalar(moment, field.type)  # raises where microseconds are finer than the type
    return moment


def _decimal(value: object, field: pa.Field) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _NotOfType
    number = Decimal(value)
    pa.scalar(number, field.type)
    return number


def _bytes(value: object, field: pa.Field) -> bytes:
    try:
        return base64.b64decode(_text(value, field), validate=True)
    except binascii.Error as error:
        raise _NotOfType from error


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], _Parse], ...] = (
    (types.is_integer, _integer),
    (types.is_string, _text),
    (types.is_boolean, _boolean),
    (types.is_date32, _date),
    (types.is_timestamp, _timestamp),
    (types.is_decimal, _decimal),
    (types.is_binary, _bytes),
)
