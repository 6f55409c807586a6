"""The mapping between Arrow's types and Spark's."""

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from lookup_core.errors import InvalidRequest
from spark_client.schemas import arrow_type, key_field, spark_type

MAPPING = [
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.uint8(), spark.ShortType()),
    (pa.uint16(), spark.IntegerType()),
    (pa.uint32(), spark.LongType()),
    (pa.uint64(), spark.DecimalType(20, 0)),
    (pa.float16(), spark.FloatType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.decimal128(10, 2), spark.DecimalType(10, 2)),
    (pa.decimal256(38, 2), spark.DecimalType(38, 2)),
    (pa.utf8(), spark.StringType()),
    (pa.large_utf8(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.binary(16), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (pa.date64(), spark.DateType()),
    (pa.time32("ms"), spark.TimeType(6)),
    (pa.time64("us"), spark.TimeType(6)),
    (pa.timestamp("us", "UTC"), spark.TimestampType()),
    (pa.timestamp("ns", "CET"), spark.TimestampType()),
    (pa.timestamp("ms"), spark.TimestampNTZType()),
    (pa.list_(pa.utf8()), spark.ArrayType(spark.StringType())),
    (pa.list_(pa.uint32()), spark.ArrayType(spark.LongType())),
    (pa.list_(pa.timestamp("us", "UTC")), spark.ArrayType(spark.TimestampType())),
]


@pytest.mark.parametrize(("arrow", "expected"), MAPPING, ids=str)
def test_columns_have_one_type_each(arrow: pa.DataType, expected: spark.DataType) -> None:
    """Each flat type has its exact counterpart, into which values can be cast."""
    found = spark_type(pa.field("c", arrow))

    assert found == expected
    assert pa.nulls(1, arrow).cast(arrow_type(found)).null_count == 1


@pytest.mark.parametrize(
    "arrow",
    [
        pa.decimal256(39, 0),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.decimal256(39, 0)),
        pa.null(),
        pa.struct({"a": pa.int8()}),
    ],
)
def test_types_without_counterpart_are_refused(arrow: pa.DataType) -> None:
    """What Spark could not hold exactly is an error that names the column."""
    with pytest.raises(InvalidRequest, match="column 'c' is"):
        spark_type(pa.field("c", arrow))


def test_keys_are_flat() -> None:
    """A struct or a map is no key."""
    assert key_field("k", spark.TimestampType()) == pa.field("k", pa.timestamp("us", "UTC"))
    with pytest.raises(InvalidRequest, match="column 'k' is array<string>"):
        key_field("k", spark.ArrayType(spark.StringType()))
