"""The Arrow types in which Spark takes its columns, the same for every version of Spark."""

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client.schemas import arrow_type, column_field, key_field

KEYS: list[tuple[spark.DataType, pa.DataType]] = [
    (spark.BooleanType(), pa.bool_()),
    (spark.ByteType(), pa.int8()),
    (spark.ShortType(), pa.int16()),
    (spark.IntegerType(), pa.int32()),
    (spark.LongType(), pa.int64()),
    (spark.FloatType(), pa.float32()),
    (spark.DoubleType(), pa.float64()),
    (spark.DecimalType(9, 2), pa.decimal128(9, 2)),
    (spark.StringType(), pa.utf8()),
    (spark.StringType("UTF8_LCASE"), pa.utf8()),
    (spark.BinaryType(), pa.binary()),
    (spark.DateType(), pa.date32()),
    (spark.TimestampType(), pa.timestamp("us", "UTC")),
    (spark.TimestampNTZType(), pa.timestamp("us")),
]
COLUMNS: list[tuple[spark.DataType, pa.DataType]] = [
    *KEYS,
    (spark.TimeType(6), pa.time64("ns")),
    (spark.ArrayType(spark.StringType()), pa.list_(pa.field("element", pa.utf8()))),
    (
        spark.ArrayType(spark.LongType(), containsNull=False),
        pa.list_(pa.field("element", pa.int64(), nullable=False)),
    ),
]
NONE: list[spark.DataType] = [
    spark.StructType([spark.StructField("a", spark.LongType())]),
    spark.MapType(spark.StringType(), spark.StringType()),
    spark.ArrayType(spark.MapType(spark.StringType(), spark.StringType())),
    spark.DayTimeIntervalType(),
    spark.NullType(),
]


@pytest.mark.parametrize(("kind", "expected"), COLUMNS, ids=str)
def test_columns_have_one_arrow_type(kind: spark.DataType, expected: pa.DataType) -> None:
    """Nullability of an array's elements included."""
    found = column_field("c", kind)

    assert found == pa.field("c", expected)
    assert found.type.equals(expected, check_metadata=True)


@pytest.mark.parametrize("kind", NONE, ids=str)
def test_other_types_are_refused_by_name(kind: spark.DataType) -> None:
    """A `schema=` with a type that no dimension has is an error on the driver."""
    with pytest.raises(InvalidRequest) as refused:
        column_field("c", kind)

    assert refused.value.code is ErrorCode.TYPE
    assert refused.value.detail == f"column 'c' is {kind.simpleString()}, which no dimension has"
    assert arrow_type(kind) == pa.null()


@pytest.mark.parametrize(("kind", "expected"), KEYS, ids=str)
def test_keys_travel_as_spark_has_them(kind: spark.DataType, expected: pa.DataType) -> None:
    """A key's field on the wire has the type of the records' column."""
    assert key_field("k", kind) == pa.field("k", expected)


@pytest.mark.parametrize("kind", [*(kind for kind, _ in COLUMNS[len(KEYS) :]), *NONE], ids=str)
def test_other_types_are_no_keys(kind: spark.DataType) -> None:
    """Times of day, arrays and what no dimension has."""
    with pytest.raises(InvalidRequest, match="which is no key type") as refused:
        key_field("k", kind)

    assert refused.value.code is ErrorCode.KEY_TYPE
