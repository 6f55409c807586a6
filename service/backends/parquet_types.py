"""How the many types that a Parquet file can hold become the few that lookups carry.

Widening and re-encoding only: a value is the same before and after, or the file is refused.
"""

import pyarrow as pa
from pyarrow import types

_SAME = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.utf8(), pa.binary(), pa.date32()),
)
_WIDER = (
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.uint64(), pa.decimal128(20, 0)),
    (pa.float16(), pa.float32()),
    (pa.large_utf8(), pa.utf8()),
    (pa.string_view(), pa.utf8()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.date64(), pa.date32()),
)
_MOST_DIGITS = 38  # of a decimal128, and of Spark


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that a column of this type is looked up as; None if lookups cannot carry it."""
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if kind in _SAME:
        return kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    return next((wider for narrow, wider in _WIDER if narrow == kind), None)
