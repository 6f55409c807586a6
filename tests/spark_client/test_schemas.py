"""Schemas: Arrow and Spark types, the output of a DataFrame, and the driver's look at a sidecar."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable
from lookup_core.protocol import frames
from spark_client.driver.schemas import (
    STATUS,
    added_fields,
    chosen_columns,
    described_columns,
    described_key,
)
from spark_client.lookup_settings import Needs
from spark_client.spark_types import arrow_type, check_types, column_field, key_field, spark_type
from spark_client.transport.connections import ANY_KEY, SidecarAddress
from tests.spark_client.builders import KEY, received
from tests.spark_client.memory_transport import ReachableSidecar

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
    (spark.BinaryType(), pa.binary()),
    (spark.DateType(), pa.date32()),
    (spark.TimestampType(), pa.timestamp("us", "UTC")),
    (spark.TimestampNTZType(), pa.timestamp("us")),
]
NO_KEYS: list[tuple[spark.DataType, pa.DataType]] = [
    (spark.TimeType(6), pa.time64("ns")),
    (spark.ArrayType(spark.StringType()), pa.list_(pa.field("element", pa.utf8()))),
    (
        spark.ArrayType(spark.LongType(), containsNull=False),
        pa.list_(pa.field("element", pa.int64(), nullable=False)),
    ),
]
# Types of dimensions that Spark has only in a wider or another form.
CAST: list[tuple[spark.DataType, pa.DataType]] = [
    (spark.ShortType(), pa.uint8()),
    (spark.IntegerType(), pa.uint16()),
    (spark.LongType(), pa.uint32()),
    (spark.DecimalType(20, 0), pa.uint64()),
    (spark.FloatType(), pa.float16()),
    (spark.DecimalType(38, 2), pa.decimal256(38, 2)),
    (spark.StringType(), pa.large_utf8()),
    (spark.BinaryType(), pa.large_binary()),
    (spark.BinaryType(), pa.binary(16)),
    (spark.DateType(), pa.date64()),
    (spark.TimeType(6), pa.time32("ms")),
    (spark.TimestampType(), pa.timestamp("ns", "CET")),
    (spark.TimestampNTZType(), pa.timestamp("ms")),
    (spark.ArrayType(spark.LongType()), pa.list_(pa.uint32())),
    (spark.ArrayType(spark.TimestampType()), pa.list_(pa.timestamp("us", "UTC"))),
    (spark.ArrayType(spark.ArrayType(spark.LongType())), pa.list_(pa.list_(pa.int64()))),
    (
        spark.StructType([spark.StructField("a", spark.ArrayType(spark.ByteType()))]),
        pa.struct({"a": pa.list_(pa.int8())}),
    ),
]
NONE: list[spark.DataType] = [
    spark.StructType([]),
    spark.StructType([spark.StructField("a", spark.NullType())]),
    spark.MapType(spark.StringType(), spark.StringType()),
    spark.ArrayType(spark.MapType(spark.StringType(), spark.StringType())),
    spark.DayTimeIntervalType(),
    spark.NullType(),
]


@pytest.mark.parametrize(("kind", "expected"), [*KEYS, *NO_KEYS], ids=str)
def test_columns_have_one_arrow_type(kind: spark.DataType, expected: pa.DataType) -> None:
    """The same for every version of Spark, and for keys on the wire."""
    found = column_field("c", kind)

    assert found == pa.field("c", expected)
    assert found.type.equals(expected, check_metadata=True)
    if (kind, expected) in KEYS:
        assert key_field("c", kind) == found


@pytest.mark.parametrize(("expected", "arrow"), [*KEYS[:9], *KEYS[10:], *CAST], ids=str)
def test_columns_have_one_spark_type(expected: spark.DataType, arrow: pa.DataType) -> None:
    """Each flat type, or list of one, has a counterpart to which values can be cast."""
    found = spark_type(pa.field("c", arrow))

    assert found == expected
    assert pa.nulls(1, arrow).cast(arrow_type(found)).null_count == 1


@pytest.mark.parametrize(
    "arrow",
    [
        pa.decimal256(39, 0),
        pa.list_(pa.decimal256(39, 0)),
        pa.null(),
        pa.struct({"a": pa.decimal256(39, 0)}),
    ],
    ids=str,
)
def test_inexact_types_are_refused(arrow: pa.DataType) -> None:
    """A type that Spark cannot represent exactly is an error with the column."""
    with pytest.raises(
        InvalidRequest, match=r"column 'c' is .*, which PySpark .* cannot hold exactly"
    ):
        spark_type(pa.field("c", arrow))


@pytest.mark.parametrize("kind", NONE, ids=str)
def test_types_without_dimension_are_refused(kind: spark.DataType) -> None:
    """A `schema=` with a type that no dimension has is an error on the driver."""
    with pytest.raises(InvalidRequest) as refused:
        column_field("c", kind)

    assert refused.value.code is ErrorCode.TYPE
    assert refused.value.detail == f"column 'c' is {kind.simpleString()}, which no dimension has"
    assert arrow_type(kind) == pa.null()


@pytest.mark.parametrize("kind", [*(kind for kind, _ in NO_KEYS), *NONE], ids=str)
def test_other_types_are_no_keys(kind: spark.DataType) -> None:
    """Times of day, arrays and types that no dimension has are no keys."""
    with pytest.raises(InvalidRequest, match=r"column 'k' is .*, which is no key type") as refused:
        key_field("k", kind)

    assert refused.value.code is ErrorCode.KEY_TYPE


def test_output_keeps_the_records_fields() -> None:
    """Added fields are nullable, whatever the dimension says."""
    columns = StructType([StructField("name", StringType(), nullable=False)])

    added = added_fields(columns, prefix="c_", status_column="_lookup")
    shorter = added_fields(columns, prefix="", status_column=None)

    assert added == [StructField("c_name", StringType()), StructField("_lookup", STATUS)]
    assert STATUS.simpleString() == "struct<outcome:string,age_ms:bigint,error:string>"
    assert shorter == [StructField("name", StringType())]


def test_given_schema_is_narrowed() -> None:
    """Names select and order the columns of a schema; a missing one is an error."""
    given = StructType([StructField("a", LongType()), StructField("b", StringType())])

    assert chosen_columns(given, None) is given
    assert chosen_columns(given, ["b", "a"]).names == ["b", "a"]
    with pytest.raises(ValueError, match="lacks x, y, which columns= names"):
        chosen_columns(given, ["x", "a", "y"])


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        (pa.int64(), pa.int16()),
        (pa.int16(), pa.uint8()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(12, 3), pa.decimal128(10, 2)),
        (pa.timestamp("us", "UTC"), pa.timestamp("ns", "CET")),
        (pa.list_(pa.struct({"a": pa.int64()})), pa.list_(pa.struct({"a": pa.int32()}))),
    ],
    ids=str,
)
def test_wider_types_may_be_declared(declared: pa.DataType, sent: pa.DataType) -> None:
    """A type in `schema=` may be wider than the dimension's, or Spark's for one that it lacks."""
    check_types(pa.schema({"c": declared}), pa.schema({"c": sent}), dimension="d")


@pytest.mark.parametrize(
    ("declared", "sent", "own", "other"),
    [
        (pa.int32(), pa.decimal128(9, 2), "decimal(9,2)", "int"),
        (pa.decimal128(9, 2), pa.int32(), "int", "decimal(9,2)"),
        (pa.decimal128(9, 3), pa.decimal128(9, 2), "decimal(9,2)", "decimal(9,3)"),
        (pa.decimal128(9, 1), pa.decimal128(8, 2), "decimal(8,2)", "decimal(9,1)"),
        (pa.int32(), pa.int64(), "bigint", "int"),
        (pa.float32(), pa.float64(), "double", "float"),
        (pa.float64(), pa.int32(), "int", "double"),
        (pa.utf8(), pa.int32(), "int", "string"),
        (pa.bool_(), pa.int32(), "int", "boolean"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "timestamp", "timestamp_ntz"),
        (pa.date32(), pa.timestamp("us"), "timestamp_ntz", "date"),
        (pa.int32(), pa.list_(pa.int32()), "array<int>", "int"),
        (pa.struct({"a": pa.utf8()}), pa.struct({"b": pa.utf8()}), "struct<b:string>", "struct"),
    ],
    ids=str,
)
def test_other_types_may_not_be_declared(
    declared: pa.DataType, sent: pa.DataType, own: str, other: str
) -> None:
    """A type in `schema=` that may lose values is refused with column, both types and remedy."""
    with pytest.raises(InvalidRequest) as refused:
        check_types(pa.schema({"c": declared}), pa.schema({"c": sent}), dimension="d")

    assert refused.value.code is ErrorCode.TYPE
    assert refused.value.detail.startswith(
        f"column 'c' of 'd' is {own}, but the query expects {other}"
    )
    assert f"declare c {own} in schema=" in refused.value.detail


SINCE = pa.timestamp("us")


def test_driver_reads_columns_and_key(sidecar: ReachableSidecar, address: SidecarAddress) -> None:
    """All columns or the named ones, and the key's names; the channels are closed."""
    everything = described_columns(address, "customers", columns=None, key=KEY, needs=Needs())
    tier = described_columns(address, "customers", columns=["tier"], key=ANY_KEY, needs=Needs())

    assert everything == pa.schema({"name": pa.utf8(), "tier": pa.int32()})
    assert tier == pa.schema({"tier": pa.int32()})
    assert described_key(address, "customers") == ("id",)
    assert len(received(sidecar, frames.Open)) == 3
    assert received(sidecar, frames.Close)[:2] == [frames.Close(1), frames.Close(2)]


def test_versions_are_described_as_single_values(address: SidecarAddress) -> None:
    """With `as_of` the types are those of one version; only named columns are described."""
    everything, name = (
        described_columns(address, "history", columns=columns, key=KEY, needs=Needs(is_as_of=True))
        for columns in (None, ["name"])
    )

    assert everything == pa.schema({"name": pa.utf8(), "since": SINCE})
    assert name == pa.schema({"name": pa.utf8()})
    with pytest.raises(InvalidRequest, match="as_of"):
        described_columns(address, "history", columns=None, key=KEY, needs=Needs())


def test_driver_without_sidecar_gets_a_remedy(tmp_path: Path) -> None:
    """The error has the path, and the option that needs no sidecar."""
    address = SidecarAddress(f"unix://{tmp_path}/none.sock", None, 0.01)

    with pytest.raises(SidecarUnreachable, match=r"none\.sock: no such socket") as columns:
        described_columns(address, "customers", columns=None, key=KEY, needs=Needs())
    with pytest.raises(SidecarUnreachable) as key:
        described_key(address, "customers")

    assert "schema=" in columns.value.detail
    assert "on=" in str(key.value)
