"""The key in a path: `/42`, or `/JFK,2013-01-01T10:00:00Z` for a composite one.

Each part is percent-encoded; the commas between parts are not. Not for keys in bodies.
"""

import re
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS = {"true": True, "false": False}


def path_key(raw_path: str, schema: DimensionSchema) -> TypedKeys:
    """The one key that the last segment of a path names, in its exact type.

    `raw_path` is the path as it was sent: decoded, a comma would no longer tell what it parts.

    Raises InvalidRequest (`type`, `invalid_text`) for what is not of the key's type.
    """
    segment = raw_path.rpartition("/")[2]
    fields = list(schema.key)
    parts = segment.split(",") if len(fields) > 1 else [segment]
    if len(parts) != len(fields):
        raise _refused(ErrorCode.TYPE, schema)
    values = [_value(part, field, schema) for part, field in zip(parts, fields, strict=True)]
    keys = typed_keys_from_json([values if len(fields) > 1 else values[0]], schema)
    if keys.faults:
        raise _refused(keys.faults[0], schema)
    return keys


def path_value(raw_path: str, schema: DimensionSchema) -> object:
    """The value of the key that a path names, where it has one column; else None.

    It may be of another type than the key. Raises InvalidRequest (`invalid_text`).
    """
    if len(schema.key) > 1:
        return None
    return _value(raw_path.rpartition("/")[2], schema.key.field(0), schema)


def _value(part: str, field: pa.Field, schema: DimensionSchema) -> str | int:
    try:
        text = unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise _refused(ErrorCode.INVALID_TEXT, schema) from error
    if types.is_integer(field.type) and _INTEGER.fullmatch(text):
        return int(text)
    if types.is_boolean(field.type):
        return _BOOLEANS.get(text, text)
    return text


def _refused(code: ErrorCode, schema: DimensionSchema) -> InvalidRequest:
    key = ", ".join(f"{field.name}: {field.type}" for field in schema.key)
    return InvalidRequest(code, f"the path does not name a key ({key})")
