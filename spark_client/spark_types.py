"""Types of columns: the mapping between Arrow and Spark, the same for every version of Spark."""

import pyarrow as pa
import pyspark
from pyarrow import types
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest

_SPARK_TYPES: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.utf8(): spark.StringType(),
    pa.large_utf8(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    # Spark has no unsigned and no half-precision numbers, and days only.
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float16(): spark.FloatType(),
    pa.date64(): spark.DateType(),
}
# By name, because not every version has every type.
_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.utf8(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("ns"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
_TEXTS_OF_LENGTH = {"char", "varchar"}
BINARY_COLLATION = "UTF8_BINARY"  # Spark's default: equal texts have equal bytes
_MAX_DECIMAL_DIGITS = 38


def spark_type(column: pa.Field) -> spark.DataType:
    """The Spark type of a dimension's column; a list becomes an array.

    Raises InvalidRequest for types whose values Spark cannot represent exactly.
    """
    kind = column.type
    if types.is_list(kind):
        return spark.ArrayType(spark_type(column.with_type(kind.value_type)))
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return StructType(
            [StructField(each.name, spark_type(column.with_type(each.type))) for each in fields]
        )
    return _flat_type(column)


def _flat_type(column: pa.Field) -> spark.DataType:
    kind = column.type
    if kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if types.is_time(kind) and hasattr(spark, "TimeType"):  # new in PySpark 4.1
        return spark.TimeType(6)
    if types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    if types.is_decimal(kind) and kind.precision <= _MAX_DECIMAL_DIGITS:
        return spark.DecimalType(kind.precision, kind.scale)
    raise InvalidRequest(
        ErrorCode.TYPE,
        f"column {column.name!r} is {kind}, which PySpark {pyspark.__version__} cannot hold"
        " exactly; leave it out with columns=",
    )


def arrow_type(kind: spark.DataType) -> pa.DataType:
    """The Arrow type of a Spark column; null for types that no dimension has."""
    if isinstance(kind, spark.ArrayType):
        element = arrow_type(kind.elementType)
        if types.is_null(element):
            return element
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, StructType):
        fields = [
            pa.field(field.name, arrow_type(field.dataType), nullable=field.nullable)
            for field in kind
        ]
        is_known = fields and not any(types.is_null(field.type) for field in fields)
        return pa.struct(fields) if is_known else pa.null()
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW_TYPES.get(kind.typeName(), pa.null())


def column_field(name: str, kind: spark.DataType) -> pa.Field:
    """The Arrow field of a dimension's column; InvalidRequest for types that no dimension has."""
    found = arrow_type(kind)
    if types.is_null(found):
        raise InvalidRequest(
            ErrorCode.TYPE, f"column {name!r} is {kind.simpleString()}, which no dimension has"
        )
    return pa.field(name, found)


def key_field(name: str, kind: spark.DataType) -> pa.Field:
    """The field of a key on the wire; raises InvalidRequest for types that are no keys."""
    # char(n) and varchar(n) are texts to Python functions.
    found = pa.utf8() if kind.typeName() in _TEXTS_OF_LENGTH else arrow_type(kind)
    collation = getattr(kind, "collation", BINARY_COLLATION)  # new in PySpark 4.0
    if collation != BINARY_COLLATION:
        raise InvalidRequest(
            ErrorCode.KEY_TYPE,
            f"column {name!r} has the collation {collation}, to which different texts are equal,"
            " but a lookup compares their bytes; give"
            f" on=F.collate({name!r}, {BINARY_COLLATION!r})",
        )
    if not _is_of_keys(found):
        raise InvalidRequest(
            ErrorCode.KEY_TYPE, f"column {name!r} is {kind.simpleString()}, which is no key type"
        )
    return pa.field(name, found)


def _is_of_keys(kind: pa.DataType) -> bool:
    return not (types.is_null(kind) or types.is_nested(kind) or types.is_time(kind))


def check_types(declared: pa.Schema, sent: pa.Schema, *, dimension: str) -> None:
    """Raise InvalidRequest unless each declared type is that of the dimension's column, or wider.

    Wider are larger integers, double for float, and decimals with more digits.
    """
    for wanted, given in zip(declared, sent, strict=False):
        kind, own = spark_type(wanted), spark_type(given)
        if not _holds(kind, own):
            raise InvalidRequest(
                ErrorCode.TYPE,
                f"column {given.name!r} of {dimension!r} is {own.simpleString()}, but the query"
                f" expects {kind.simpleString()}; declare {given.name} {own.simpleString()} in"
                " schema=, or, without schema=, restart the query to read the types again",
            )


def _holds(declared: spark.DataType, sent: spark.DataType) -> bool:
    if isinstance(declared, spark.ArrayType) and isinstance(sent, spark.ArrayType):
        return _holds(declared.elementType, sent.elementType)
    if isinstance(declared, StructType) and isinstance(sent, StructType):
        pairs = zip(declared, sent, strict=False)
        are_wide = all(_holds(wide.dataType, narrow.dataType) for wide, narrow in pairs)
        return are_wide and declared.names == sent.names
    if isinstance(declared, spark.DecimalType) and isinstance(sent, spark.DecimalType):
        whole_digits = sent.precision - sent.scale
        return declared.scale >= sent.scale and declared.precision - declared.scale >= whole_digits
    wide, narrow = declared.simpleString(), sent.simpleString()
    return wide == narrow or wide in _WIDER.get(narrow, ())
