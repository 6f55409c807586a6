"""The exact mapping between the Arrow types of dimensions and the types of Spark.

Nothing is rounded or cut: a type that Spark cannot hold exactly is refused.
"""

import pyarrow as pa
from pyarrow import types
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from lookup_core.errors import ErrorCode, InvalidRequest

_WIDENED: dict[pa.DataType, spark.DataType] = {  # Spark has no unsigned and no half-precision
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float16(): spark.FloatType(),
    pa.date64(): spark.DateType(),
}
_MOST_DIGITS = 38  # of a decimal in Spark
_KEY_TYPES = (
    spark.IntegralType,
    spark.StringType,
    spark.BinaryType,
    spark.BooleanType,
    spark.DecimalType,
    spark.FloatType,
    spark.DoubleType,
    spark.DateType,
    spark.TimestampType,
    spark.TimestampNTZType,
)


def spark_type(column: pa.Field) -> spark.DataType:
    """The type that a dimension's column has in Spark; raises InvalidRequest if it has none.

    A list of the values of several rows becomes an array.
    """
    if types.is_list(column.type):
        return spark.ArrayType(_flat_type(pa.field(column.name, column.type.value_type)))
    return _flat_type(column)


def _flat_type(column: pa.Field) -> spark.DataType:
    kind = column.type
    if kind in _WIDENED:
        return _WIDENED[kind]
    if types.is_time(kind):
        return spark.TimeType(6)
    is_too_long = types.is_decimal(kind) and kind.precision > _MOST_DIGITS
    if types.is_null(kind) or types.is_nested(kind) or types.is_dictionary(kind) or is_too_long:
        raise InvalidRequest(
            ErrorCode.TYPE, f"column {column.name!r} is {kind}, which Spark cannot hold exactly"
        )
    return from_arrow_type(kind)


def arrow_type(kind: spark.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes a column of this type."""
    return to_arrow_type(kind, timezone="UTC")


def key_field(name: str, kind: spark.DataType) -> pa.Field:
    """A key's field on the wire; raises InvalidRequest for types that are no keys."""
    if not isinstance(kind, _KEY_TYPES):
        raise InvalidRequest(
            ErrorCode.KEY_TYPE, f"column {name!r} is {kind.simpleString()}, which is no key type"
        )
    return pa.field(name, arrow_type(kind))
