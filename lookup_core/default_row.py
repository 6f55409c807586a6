"""The row that stands in for missing ones, from the values of a configuration into exact types.

Not the decision when it does: see `dimension.known_answers`.
"""

from collections.abc import Mapping

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
    is_flag = isinstance(value, bool)
    if value is not None and is_flag != types.is_boolean(field.type):
        raise _unfit(f"column {field.name} is {field.type}, which {value!r} is not")
    try:
        return _converted(field.type, value)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
    ) as error:
        raise _unfit(f"column {field.name} is {field.type}, which {value!r} is not") from error


def _converted(kind: pa.DataType, value: object) -> pa.Array:
    is_parsed = isinstance(value, str) and not (types.is_string(kind) or types.is_binary(kind))
    if is_parsed:
        return pa.array([value]).cast(kind)
    return pa.array([value], kind)


def _unfit(reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"default: {reason}")
