"""Keys that come as Arrow columns, brought to the dimension's exact key types.

A cast never changes what a key equals: a value that the key's type cannot hold is a fault of that
key alone, a type that could only be guessed at is refused for the whole channel. Not for JSON.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import TypedKeys

UUID_FIELD = {b"sidelook.type": b"uuid"}  # metadata of a binary(16) key that is written as text
NO_NUL_FIELD = {b"sidelook.type": b"text_without_nul"}  # Postgres text holds no U+0000

UUID_PATTERN = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"

_Cast = Callable[[pa.Array, pa.Field], pa.Array]


def typed_keys_from_arrow(batch: pa.RecordBatch, schema: DimensionSchema) -> TypedKeys:
    """The keys of a batch whose fields are named like the dimension's key, in any order.

    A key that its type cannot hold gets the fault `type` (or `invalid_text`). Raises InvalidRequest
    (`key_type`) when `check_key_types` would.
    """
    columns, faults = [], {}
    nulls = np.zeros(batch.num_rows, np.bool_)
    for field, cast_column in _casts(batch.schema, schema):
        given = batch.column(field.name)
        cast = cast_column(given, field)
        given_nulls = _null_mask(given)
        nulls |= given_nulls
        refused = np.flatnonzero(_null_mask(cast) & ~given_nulls)
        code = ErrorCode.INVALID_TEXT if field.metadata == NO_NUL_FIELD else ErrorCode.TYPE
        faults.update(dict.fromkeys(refused.tolist(), code))
        columns.append(cast)
    null_positions = np.flatnonzero(nulls).astype(np.int32)
    for position in null_positions.tolist() if faults else ():
        faults.pop(position, None)  # a key with a NULL part matches nothing, whatever the rest
    return TypedKeys(pa.record_batch(columns, schema=schema.key), null_positions, faults)


def check_key_types(given: pa.Schema, schema: DimensionSchema) -> None:
    """Raise InvalidRequest (`key_type`) unless fields and types fit the dimension's key."""
    _casts(given, schema)


def _casts(given: pa.Schema, schema: DimensionSchema) -> list[tuple[pa.Field, _Cast]]:
    if sorted(given.names) != sorted(schema.key.names):
        raise InvalidRequest(
            ErrorCode.KEY_TYPE,
            f"the key is ({', '.join(schema.key.names)}), not ({', '.join(given.names)})",
        )
    return [(field, _cast_for(given.field(field.name).type, field)) for field in schema.key]


def _cast_for(given: pa.DataType, field: pa.Field) -> _Cast:
    for fits, cast in _CASTS:
        if fits(given, field):
            return cast
    raise InvalidRequest(
        ErrorCode.KEY_TYPE,
        f"key {field.name!r} is {_type_name(field)}, and {given} does not convert to it exactly; "
        "cast the records' column",
    )


def _type_name(field: pa.Field) -> str:
    return "uuid" if field.metadata == UUID_FIELD else str(field.type)


def _null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    if column.null_count == 0:
        return np.zeros(len(column), np.bool_)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _as_it_is(column: pa.Array, _: pa.Field) -> pa.Array:
    return column


def _widened(column: pa.Array, field: pa.Field) -> pa.Array:
    return column.cast(field.type)


def _ranged(column: pa.Array, field: pa.Field) -> pa.Array:
    given, to = (np.iinfo(kind.to_pandas_dtype()) for kind in (column.type, field.type))
    bounds = (max(int(given.min), int(to.min)), min(int(given.max), int(to.max)))
    low, high = (pa.scalar(bound, column.type) for bound in bounds)
    fits = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(field.type)


def _text_without_nul(column: pa.Array, field: pa.Field) -> pa.Array:
    text = column.cast(field.type)
    has_nul = pc.match_substring(text, "\0")
    return pc.if_else(has_nul, None, text) if pc.any(has_nul).as_py() else text


def _uuid_from_text(column: pa.Array, field: pa.Field) -> pa.Array:
    is_uuid = pc.match_substring_regex(column, UUID_PATTERN).fill_null(fill_value=False)
    digits = pc.replace_substring(column.filter(is_uuid), "-", "").cast(pa.binary())
    packed = bytes.fromhex(b"".join(digits.to_pylist()).decode())
    parsed = pa.FixedSizeBinaryArray.from_buffers(
        field.type, len(digits), [None, pa.py_buffer(packed)]
    )
    order = np.cumsum(is_uuid.to_numpy(zero_copy_only=False)) - 1
    return parsed.take(pa.array(order, mask=~is_uuid.to_numpy(zero_copy_only=False)))


def _to_microseconds(column: pa.Array, field: pa.Field) -> pa.Array:
    rounded = column.cast(field.type, safe=False)
    is_exact = pc.equal(rounded.cast(column.type, safe=False), column)
    return pc.if_else(is_exact, rounded, pa.scalar(None, field.type))


def _to_decimal(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        return pa.array([_decimal_or_none(value, field.type) for value in column], field.type)


def _decimal_or_none(value: pa.Scalar, to: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(to)
    except pa.ArrowInvalid:
        return None


def _is_wider_integer(given: pa.DataType, field: pa.Field) -> bool:
    to = field.type
    if not (types.is_integer(given) and types.is_integer(to)):
        return False
    low, high = np.iinfo(given.to_pandas_dtype()), np.iinfo(to.to_pandas_dtype())
    return bool(low.min >= high.min and low.max <= high.max)


def _is_text(given: pa.DataType) -> bool:
    return bool(types.is_string(given) or types.is_large_string(given))


def _is_bytes(given: pa.DataType) -> bool:
    return bool(types.is_binary(given) or types.is_large_binary(given))


def _are_timestamps_alike(given: pa.DataType, field: pa.Field) -> bool:
    both = types.is_timestamp(given) and types.is_timestamp(field.type)
    return bool(both and (given.tz is None) == (field.type.tz is None))


_CASTS: tuple[tuple[Callable[[pa.DataType, pa.Field], bool], _Cast], ...] = (
    (lambda given, field: field.metadata == UUID_FIELD and _is_text(given), _uuid_from_text),
    (lambda given, field: field.metadata == NO_NUL_FIELD and _is_text(given), _text_without_nul),
    (lambda given, field: given == field.type, _as_it_is),
    (_is_wider_integer, _widened),
    (lambda given, field: types.is_integer(given) and types.is_integer(field.type), _ranged),
    (lambda given, field: _is_text(given) and _is_text(field.type), _widened),
    (lambda given, field: _is_bytes(given) and _is_bytes(field.type), _widened),
    (_are_timestamps_alike, _to_microseconds),
    (lambda given, field: types.is_decimal(given) and types.is_decimal(field.type), _to_decimal),
)
