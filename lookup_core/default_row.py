"""The row that stands in for missing ones, from the values of a configuration into exact types.

Not the decision when it does: see `dimension.known_answers`.
"""

from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.nearest_name import nearest_name


def default_row(values: Mapping[str, object], columns: pa.Schema) -> pa.RecordBatch:
    """One row of these columns; those that are not named are null.

    Raises BackendError (`table_unavailable`) naming a column that does not exist, or whose type
    cannot hold the value.
    """
    for name in values:
        if name not in columns.names:
            raise _unfit(f"no column {name}{nearest_name(name, columns.names)}")
    arrays = [_array(field, values.get(field.name)) for field in columns]
    return pa.record_batch(arrays, schema=columns)


def _array(field: pa.Field, value: object) -> pa.Array:
    try:
        return pa.array([_exact(field.type, value)], field.type)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise _unfit(f"column {field.name} is {field.type}, which {value!r} is not") from error


def _exact(kind: pa.DataType, value: object) -> object:
    """The value as Arrow takes it for this type; Arrow alone would take 1.5 or True for an int."""
    if value is None:
        return None
    if isinstance(value, bool) != types.is_boolean(kind):
        raise TypeError
    if types.is_list(kind):
        return _exact_items(kind, value)
    if isinstance(value, float) and types.is_decimal(kind):
        return Decimal(repr(value))  # as it was written
    if isinstance(value, float) and not types.is_floating(kind):
        raise TypeError
    is_text = types.is_string(kind) or types.is_binary(kind)
    if isinstance(value, str) and not is_text:
        return pa.array([value]).cast(kind)[0].as_py()
    return value


def _exact_items(kind: pa.DataType, value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return [_exact(kind.value_type, item) for item in value]


def _unfit(reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"default: {reason}")
